"""Certificates that a stranger shows, read so that a strange one is an error of one kind."""

from __future__ import annotations

from collections.abc import Callable

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm


def read_pem(text: str) -> x509.Certificate:
    """Return the certificate in `text`. Raises ValueError where it cannot be read."""
    return _whole(lambda: x509.load_pem_x509_certificate(text.encode("ascii")))


def read_der(data: bytes) -> x509.Certificate:
    """Return the certificate in `data`. Raises ValueError where it cannot be read."""
    return _whole(lambda: x509.load_der_x509_certificate(data))


def _whole(load: Callable[[], x509.Certificate]) -> x509.Certificate:
    """Read a certificate with its names, times and key, each of which is parsed only when asked.

    Extensions are not parsed. The reader of an extension reports one that it cannot read.
    """
    try:
        certificate = load()
        certificate.public_key()
        _ = certificate.subject, certificate.issuer
        _ = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise ValueError(f"a certificate that cannot be read ({error})"[:200]) from error
    return certificate
