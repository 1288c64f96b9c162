"""Signatures of documents: ECDSA on P-256 with SHA-256, over a title and the document's own text.

    {"content": "<JSON, as a text>", "signature": "<base64 of the DER>"}

What is signed is the title (as `tacit statement 1`), a line feed, and the text of `content`, in
UTF-8, as it stands there. So nobody has to write JSON anew to check it, and no signature of one
kind of document is one of another.

Of the two values s that make one signature of ECDSA, the smaller is written, and the other is
refused. So nobody but the signer can make another file that has the same content.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from tacit.digests import canonical

_ALGORITHM = ec.ECDSA(hashes.SHA256())
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256 (FIPS 186-4)


def signed(title: str, content: dict[str, Any], key: ec.EllipticCurvePrivateKey) -> str:
    """Return the text of a signed document."""
    text = canonical(content)
    return _file(text, _written(key.sign(_message(title, text), _ALGORITHM)))


class SignedDocument:
    """A document with its signature, as it came: not checked before `is_by`."""

    def __init__(self, title: str, text: bytes) -> None:
        """Read it. Raises ValueError for what is no signed document."""
        self._title = title
        try:
            document = json.loads(text)
            self._text = document["content"]
            self._signature = base64.b64decode(document["signature"], validate=True)
            if text != _file(self._text, self._signature).encode():
                raise ValueError("is not written as a signed document is")
            content = json.loads(self._text, object_pairs_hook=_once)
        except (TypeError, KeyError, RecursionError, binascii.Error, UnicodeError) as error:
            raise ValueError("is no signed document") from error
        if not isinstance(content, dict):
            raise ValueError("is no signed document")
        self.content: dict[str, Any] = content

    def is_by(self, key: PublicKeyTypes) -> bool:
        """Check whether the owner of `key` has signed it."""
        p256 = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
        if not p256:
            return False
        assert isinstance(key, ec.EllipticCurvePublicKey)
        try:
            if self._signature != _written(self._signature):
                return False
            key.verify(self._signature, _message(self._title, self._text), _ALGORITHM)
        except (InvalidSignature, ValueError):
            return False
        return True


def _written(signature: bytes) -> bytes:
    """Return the one form of a signature that is written. Raises ValueError for what is no DER."""
    r, s = decode_dss_signature(signature)
    return encode_dss_signature(r, min(s, _ORDER - s))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys all stand once: two readers might take another of two."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("has a key twice")
    return content


def _file(text: str, signature: bytes) -> str:
    """Return the one file that has this text and signature."""
    document = {"content": text, "signature": base64.b64encode(signature).decode()}
    return json.dumps(document, ensure_ascii=False) + "\n"


def _message(title: str, text: str) -> bytes:
    return f"{title}\n{text}".encode()
