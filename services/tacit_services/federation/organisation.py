"""What an organisation brings to its federation: its own authority, HTTPS certificate, broker.

Members believe the organisation's authority for who serves, and never for who asks: the
certificates of members are of the federation's own authority alone.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

from cryptography import x509

from tacit import regular_file
from tacit.errors import ConfigError
from tacit_services.enrollment import certificates
from tacit_services.transport.address import split_host_port
from tacit_services.transport.mqtt import ALPN
from tacit_services.transport.tls import Tls

_MOST = 1 << 15  # bytes of the organisation's roots: members fetch them in one short document
_SECONDS = 5.0  # for the broker to answer
_ENDED = 10  # these are OpenSSL's numbers of what is wrong with a certificate
_OTHER_NAMES = (62, 64)


def roots(path: Path) -> str:
    """Return the certificates of the organisation's authority, as PEM and nothing else.

    Raises ConfigError for a file that cannot be read, or holds what is no root.
    """
    try:
        listed = x509.load_pem_x509_certificates(regular_file.content(path, _MOST))
        for certificate in listed:
            _check_root(certificate)
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"organisation_ca={str(path)!r}: {why}") from error
    return "".join(certificates.pem(certificate).decode("ascii") for certificate in listed)


def _check_root(certificate: x509.Certificate) -> None:
    """Raise ValueError for a certificate to which no chain leads that a TLS library would end."""
    subject, issuer = (name.rfc4514_string() for name in (certificate.subject, certificate.issuer))
    if issuer != subject:
        raise ValueError(
            f"{subject} is no root: {issuer} has signed it; name the root, and put what is between "
            "into the files of the servers' certificates"
        )
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    if not constraints.value.ca:
        raise ValueError(f"{subject} is not an authority's certificate")


def complaint_of_web(certificate: Path, key: Path, members: ssl.SSLContext, name: str) -> str:
    """Return why members would not take this certificate for the host `name`; "" where they would.

    members: believes what they do. Raises ConfigError for files that are no certificate and its
    key.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        for path in (certificate, key):
            regular_file.check(path)
        server.load_cert_chain(certificate, key, password="")  # never ask at a terminal
    except (OSError, ssl.SSLError) as error:
        ssl_error = isinstance(error, ssl.SSLError)
        why = (getattr(error, "reason", None) or "no PEM") if ssl_error else error.strerror
        raise ConfigError(
            f"certificate={str(certificate)!r} with key={str(key)!r}: not a certificate and its "
            f"unencrypted key ({why})"
        ) from error
    try:
        _shake_hands(server, members, name)
    except ssl.SSLCertVerificationError as error:
        return f"certificate={str(certificate)!r}: members will not take it: {_words(error)}"
    return ""


def complaint_of_broker(address: str, name: str, tls: Tls) -> str:
    """Return why the broker at `address` is not taken for the host `name`; "" where it is.

    tls: believes what members do. Raises ConfigError for files of `tls` that cannot be used.
    """
    host, port = split_host_port(address)
    context = tls.context(ALPN)
    try:
        with (
            socket.create_connection((host, port), _SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=name),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return f"broker={address}: its certificate is not taken for {name}: {_words(error)}"
    except OSError as error:
        return f"broker={address}: {getattr(error, 'strerror', None) or error}; it is tried again"


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Let a client meet a server in memory. Raises SSLCertVerificationError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(down, up, server_hostname=name)
    answering = server.wrap_bio(up, down, server_side=True)
    for side in (asking, answering, asking):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()


def _words(error: ssl.SSLCertVerificationError) -> str:
    """Return what is wrong with a certificate, and what to do."""
    why = error.verify_message.rstrip(".")
    if error.verify_code in _OTHER_NAMES:
        return f"{why}; get one for that name as well (--host: what members call this host)"
    if error.verify_code == _ENDED:
        return f"{why}; put a new one there"
    return (
        f"{why}; the file must hold the chain up to its root, and where that is no public one, "
        "--organisation-ca names the root"
    )
