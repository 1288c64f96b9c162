"""A role's state as bytes: safetensors, with JSON values in its metadata.

    "TCTSTAT1" | XXH3-64 of the rest | safetensors

There is no pickle, and floats are exact. The checksum is there because safetensors has none: a
flipped bit in a tensor would silently be another model.
"""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
import xxhash
from safetensors import SafetensorError
from torch import Tensor

from tacit.errors import ServiceError, other_format
from tacit_services.journal import safetensors_pieces

_VERSION = "1"
_MAGIC = b"TCTSTAT1"
_HEAD = len(_MAGIC) + 8


def dumps(tensors: dict[str, Tensor], values: dict[str, Any]) -> bytes:
    """Return the bytes of a snapshot.

    JSON floats are written with repr, so they come back to the last bit.
    """
    return b"".join(pieces(tensors, json.dumps(values)))


def pieces(tensors: dict[str, Tensor], values: str) -> list[bytes | memoryview]:
    """Return the bytes of a snapshot whose values are this JSON, one behind the other.

    No tensor is copied, if it is on the CPU and contiguous: nothing may be written into it
    meanwhile.
    """
    parts = safetensors_pieces.pieces(tensors, {"tacit": _VERSION, "values": values})
    check = xxhash.xxh3_64()
    for part in parts:
        check.update(part)
    return [_MAGIC, check.digest(), *parts]


def loads(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and values that `dumps` was given.

    Raises ServiceError where the snapshot is damaged or of another version.
    """
    check = data[len(_MAGIC) : _HEAD]
    content = data[_HEAD:]
    if not data.startswith(_MAGIC) or check != xxhash.xxh3_64_digest(content):
        raise ServiceError("snapshot: damaged (it does not match its checksum)")
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
        header = metadata(content)
        version = header["tacit"]
        values = json.loads(header["values"])
        if version != _VERSION:
            raise ServiceError(f"snapshot: {other_format(version, _VERSION)}")
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ServiceError(f"snapshot: damaged ({error})") from error
    return tensors, values


def metadata(data: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file, given its bytes.

    Raises ValueError where they are not such a file.
    """
    header: dict[str, dict[str, str]] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header.get("__metadata__", {})
