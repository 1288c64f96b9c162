"""TLS of a client whose broker asks for certificates.

Only paths are passed around, so that secrets stay in their files.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from tacit import regular_file
from tacit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of the trusted authorities' certificates, the client's own certificate, and its key."""

    ca: Path
    cert: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return a client's context for TLS 1.2 or later that checks the server's host name.

        Raises ConfigError, naming the file, where one cannot be used.
        """
        context = context_trusting(self.ca)
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
        return context


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
