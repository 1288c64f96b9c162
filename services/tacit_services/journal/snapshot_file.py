"""A role's state as bytes: safetensors, with the JSON values in its metadata. No pickle, exact floats.

    "TCTSTAT1" | XXH3-64 of the rest | safetensors

Nothing in safetensors tells one float from another: without the checksum a flipped bit would be another model.
"""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
import xxhash
from safetensors import SafetensorError
from torch import Tensor

from tacit.errors import ServiceError

_VERSION, _MAGIC = "1", b"TCTSTAT1"
_HEAD = len(_MAGIC) + 8


def dumps(tensors: dict[str, Tensor], values: dict[str, Any]) -> bytes:
    """The bytes of a snapshot. JSON floats are written with repr, so they come back to the last bit."""
    data: bytes = safetensors.torch.save(tensors, {"tacit": _VERSION, "values": json.dumps(values)})
    return _MAGIC + xxhash.xxh3_64_digest(data) + data


def loads(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `dumps` was given. Raises ServiceError when the snapshot is damaged or of another version."""
    if data.startswith(_MAGIC):  # one of before begins with a length, and has no checksum
        check, data = data[len(_MAGIC) : _HEAD], data[_HEAD:]
        if check != xxhash.xxh3_64_digest(data):
            raise ServiceError("snapshot: damaged (it does not match its checksum)")
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
        said = metadata(data)
        version, values = said["tacit"], json.loads(said["values"])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ServiceError(f"snapshot: damaged ({error})") from error
    if version != _VERSION:
        raise ServiceError(f"snapshot: version {version}, this tacit reads {_VERSION}")
    return tensors, values


def metadata(data: bytes) -> dict[str, str]:
    """What the bytes of a safetensors file say beside their tensors. Raises ValueError for bytes that are none."""
    header: dict[str, dict[str, str]] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header.get("__metadata__", {})
