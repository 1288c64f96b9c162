"""A researcher's name and signing key, which stay on the machine where offers are packed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from tacit import regular_file
from tacit.errors import ConfigError
from tacit_services.disk.files import SECRET
from tacit_services.offers.offer import Offer, Researcher, key_text


@dataclass(frozen=True, slots=True)
class ResearcherKey:
    """The name under which somebody submits runs, and the Ed25519 key that signs their offers.

    signed_by: whose key it is, as of `Researcher`.
    """

    name: str
    key: Ed25519PrivateKey
    signed_by: Literal["host"] | None = None

    @classmethod
    def kept(cls, path: Path, name: str, signed_by: Literal["host"] | None = None) -> Self:
        """Return the key in `path`; made with mode 0600 if the file does not exist.

        Raises ConfigError: unreadable, no Ed25519 key, or a name that nobody could read.
        """
        try:
            if not path.exists():
                _make(path)
            key = serialization.load_pem_private_key(regular_file.content(path), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"key {path}: {error}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"key {path}: is no Ed25519 key")
        researcher = cls(name, key, signed_by)
        researcher.public()
        return researcher

    def public(self) -> Researcher:
        """Return the name and the public key. Raises ConfigError for a name that is none."""
        try:
            return Researcher(name=self.name, key=key_text(self.key), signed_by=self.signed_by)
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            raise ConfigError(f"researcher {self.name!r}: {reason}") from error

    def signed(self, offer: Offer) -> Offer:
        """Return `offer` with the signature of this key. Raises ConfigError for another's."""
        return offer.signed(self.key)


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
