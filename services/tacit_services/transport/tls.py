"""TLS of a client whose broker asks for certificates.

Only paths are passed around, so that secrets stay in their files.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from tacit import regular_file
from tacit.errors import ConfigError

log = logging.getLogger("tacit.tls")
NEAR_DAYS = 30.0  # a certificate that ends sooner is to be renewed
_DAY = 86400.0  # seconds


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of the trusted authorities' certificates, the client's own certificate, and its key."""

    ca: Path
    cert: Path
    key: Path

    def context(self, protocol: str | None = None) -> ssl.SSLContext:
        """Return a client's context for TLS 1.2 or later that checks the server's host name.

        protocol: what it offers to speak (ALPN); None: it offers nothing. Raises
        ConfigError, naming the file, where one cannot be used.
        """
        context = context_trusting(self.ca)
        self.show_newest(context)
        if protocol is not None:
            context.set_alpn_protocols([protocol])
        return context

    def show_newest(self, context: ssl.SSLContext) -> None:
        """Let connections that begin from now on show the certificate that lies in its file now.

        Raises ConfigError as `context`; then those of before are shown.
        """
        for path in (self.cert, self.key):
            if not path.is_file():
                raise ConfigError(f"{path}: no such file")
        try:
            context.load_cert_chain(self.cert, self.key, password="")  # never ask at a terminal
        except (OSError, ssl.SSLError) as error:
            why = getattr(error, "reason", None) or error.strerror
            raise ConfigError(
                f"{self.cert} with {self.key}: not a certificate and its key ({why})"
            ) from error

    def tag(self, name: str) -> str:
        """Return a word, for `name`, that nobody else can guess and that stays the same.

        It is made of the own key. Raises ConfigError.
        """
        try:
            key = regular_file.content(self.key)
        except OSError as error:
            raise ConfigError(f"{self.key}: {error.strerror or error}") from error
        return hmac.new(hashlib.sha256(key).digest(), name.encode(), "sha256").hexdigest()[:32]

    def ends(self) -> float:
        """Return when the own certificate ends, in seconds since 1970. Raises ConfigError."""
        try:
            certificate = x509.load_pem_x509_certificate(regular_file.content(self.cert))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.cert}: not a certificate ({error})") from error
        return certificate.not_valid_after_utc.timestamp()

    def warn_of_end(self) -> None:
        """Log a warning where the own certificate ends soon. Raises ConfigError."""
        if remark := near_end(self.ends()):
            log.warning(
                "%s %s; renew it, and start this again (tacit pki issue NAME --renew; an edge that "
                "has enrolled renews its own at its start, a member while it works)",
                self.cert,
                remark,
            )


def near_end(ends: float) -> str:
    """Return how soon a certificate ends, in words; "" where it is not soon."""
    days = (ends - time.time()) / _DAY
    if days >= NEAR_DAYS:
        return ""
    if days < 0:
        return "has ended"
    return f"ends in {days:.0f} days"


def context_trusting(ca: Path) -> ssl.SSLContext:
    """Return a client's TLS context that trusts the authorities in the file `ca` and no other.

    Raises ConfigError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        regular_file.check(ca)
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"TACIT_TLS_CA={str(ca)!r}: {error.strerror or 'no certificate in it'}"
        ) from error
    return context
