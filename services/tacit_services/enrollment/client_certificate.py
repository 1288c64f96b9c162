"""The certificate that a request's client has shown, and TLS has verified.

TLS verifies it once, at the first of its connections. A connection that is kept alive, and one that
goes on with an earlier one's keys (session resumption), may outlast its end: look at `ends`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography import x509

from tacit_services.enrollment import certificates


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A client's certificate: its common name, its serial number, and SHA-256 of its public key.

    ends: seconds since 1970.
    """

    name: str
    serial: int
    key: str
    ends: float


def shown(scope: Mapping[str, Any]) -> ClientCertificate | None:
    """Return the certificate of a request's scope; None: its client has shown none."""
    chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
    if not chain:
        return None
    certificate = x509.load_pem_x509_certificate(chain[0].encode("ascii"))
    return ClientCertificate(
        certificates.common_name(certificate),
        certificate.serial_number,
        certificates.key_digest(certificate.public_key()),
        certificate.not_valid_after_utc.timestamp(),
    )
