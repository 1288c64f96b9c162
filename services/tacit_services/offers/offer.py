"""An offer: a run definition that is shown to members, signed by the researcher who asks.

    offer = signed(unsigned, key)          # at the researcher's
    offer = Offer.parse(content)           # wherever it arrives: strict, bounded, signature checked
    offer.fingerprint                      # what an owner consents to

Guarantee: an offer has one form. `parse` takes canonical JSON only, so two contents with different
bytes have different fingerprints, or a different signature. Nothing in an offer is executed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from tacit import shown
from tacit.digests import Sha256, canonical
from tacit.errors import ConfigError, WireError
from tacit_services.offers.file_names import a_folder_too, check_file_name

OFFER = "offer.json"  # in a folder with the offer's files
MOST_BYTES = 1 << 22  # of an offer
MOST_DEPTH = 24  # of its JSON
MOST_FILES = 64
MOST_NAME = 100  # characters of a researcher's name
_SIGNED = b"tacit offer 1\n"  # before what is signed, so that it is no other thing's signature
_DIGITS = 400  # of a number: no longer one is written
RUN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class Researcher(BaseModel):
    """The name of who asks, and the Ed25519 public key that signs, in base64.

    signed_by: "host" where the key is the host's, which signs for somebody who has submitted by its
    page; left out: the key is the researcher's own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(min_length=1, max_length=MOST_NAME)
    key: str = Field(min_length=44, max_length=44)
    signed_by: Literal["host"] | None = None

    @field_validator("name")
    @classmethod
    def _is_seen(cls, name: str) -> str:
        if shown.printable(name) != name or name != name.strip():
            raise ValueError("has characters that a reader does not see")
        return name

    @field_validator("key")
    @classmethod
    def _is_a_key(cls, key: str) -> str:
        Ed25519PublicKey.from_public_bytes(_decoded(key))
        return key

    @model_serializer(mode="wrap")
    def _without_what_is_left_out(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        stated: dict[str, Any] = content(self)
        return {key: value for key, value in stated.items() if value is not None}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key, in hexadecimal."""
        return hashlib.sha256(_decoded(self.key)).hexdigest()


class Offer(BaseModel):
    """A run definition as members see it.

    run: its name in the federation. file: the run file's sections, without what each member has
    for itself. files: SHA-256 of every public file that it names, by name. code: SHA-256 of the
    code that an owner must put at the site, by entry ("module:name").
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: Literal[1] = 1
    run: str = Field(pattern=RUN)
    file: dict[str, dict[str, Any]] = Field(max_length=16)
    files: dict[str, Sha256] = Field({}, max_length=MOST_FILES)
    code: dict[str, Sha256] = Field({}, max_length=MOST_FILES)
    researcher: Researcher
    signature: str = Field("", max_length=88)

    @field_validator("files")
    @classmethod
    def _plain_names(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            check_file_name(name)
            if name == OFFER:
                raise ValueError(f"{OFFER} is the name of the offer itself")
        if (twice := a_folder_too(files)) is not None:
            raise ValueError(f"{twice!r} is both a file and a folder")
        return files

    @model_validator(mode="after")
    def _is_no_deeper(self) -> Self:
        if _depth(self.file, MOST_DEPTH) > MOST_DEPTH:
            raise ValueError(f"file: is more than {MOST_DEPTH} deep")
        return self

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Return the offer in `content`, whose signature is its researcher's.

        Raises WireError for anything but the canonical JSON of such an offer.
        """
        tree = _tree(content)
        try:
            offer = cls.model_validate(tree)
            again = offer.content()
        except ValidationError as error:
            raise WireError("offer", complaint(error)) from error
        except UnicodeEncodeError as error:
            raise WireError("offer", "has half a character") from error
        if again != content:
            raise WireError("offer", "is not canonical JSON")
        offer.check_signature()
        return offer

    def content(self) -> bytes:
        """Return its canonical JSON."""
        return canonical(self.model_dump()).encode()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of its canonical JSON without the signature: what an owner consents to."""
        return hashlib.sha256(self._unsigned()).hexdigest()

    def check_signature(self) -> None:
        """Raise WireError unless the signature is of the key that the offer names."""
        key = Ed25519PublicKey.from_public_bytes(_decoded(self.researcher.key))
        try:
            key.verify(_decoded(self.signature), _SIGNED + self._unsigned())
        except (InvalidSignature, ValueError) as error:
            raise WireError("signature", "is not the researcher's of this offer") from error

    def signed(self, key: Ed25519PrivateKey) -> Self:
        """Return the offer with the signature of `key`. Raises ConfigError for another's key."""
        if key_text(key) != self.researcher.key:
            raise ConfigError("researcher: the offer names another key than the one that signs")
        signature = base64.b64encode(key.sign(_SIGNED + self._unsigned())).decode()
        return self.model_copy(update={"signature": signature})

    def _unsigned(self) -> bytes:
        return canonical(self.model_dump(exclude={"signature"})).encode()


def key_text(key: Ed25519PrivateKey) -> str:
    """Return the public half of `key` as an offer has it."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("is not base64") from error


def _tree(content: bytes) -> dict[str, Any]:
    if len(content) > MOST_BYTES:
        raise WireError("offer", f"has more than {MOST_BYTES:,} bytes")
    try:
        tree = json.loads(
            content,
            object_pairs_hook=_unrepeated,
            parse_constant=_refused,
            parse_int=_short,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise WireError("offer", f"is not JSON: {shown.printable(str(error), 100)}") from error
    if not isinstance(tree, dict):
        raise WireError("offer", "is no JSON object")
    return tree


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return content


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")


def _short(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("a number is too long")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _depth(value: object, most: int) -> int:
    """Return how deep `value` is, or a number above `most` where it is deeper."""
    if most < 0 or not isinstance(value, Mapping | list | tuple):
        return 1
    inside = value.values() if isinstance(value, Mapping) else value
    return 1 + max((_depth(each, most - 1) for each in inside), default=0)


def complaint(error: ValidationError) -> str:
    """Return the first of the errors in one line, with its field."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return shown.printable(f"{field}: {message}", 200)
