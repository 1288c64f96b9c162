"""What a client needs to speak TLS with a broker that asks for certificates. Paths only: secrets stay in files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Tls:
    """The authorities that we believe, our certificate, our key."""

    ca: Path
    cert: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """TLS 1.2 or later, the host's name is checked. Raises ConfigError naming the file that cannot be used."""
        made = context_trusting(self.ca)
        for path in (self.cert, self.key):
            if not path.is_file():
                raise ConfigError(f"{path}: no such file")
        try:
            made.load_cert_chain(self.cert, self.key, password="")  # never ask at a terminal
        except (OSError, ssl.SSLError) as error:
            why = getattr(error, "reason", None) or error.strerror
            raise ConfigError(
                f"{self.cert} with {self.key}: not a certificate and its key ({why})"
            ) from error
        return made


def context_trusting(ca: Path) -> ssl.SSLContext:
    """A client's context that believes the authorities in `ca` and nobody else. Raises ConfigError."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"TACIT_TLS_CA={str(ca)!r}: {error.strerror or 'no certificate in it'}"
        ) from error
    return made
