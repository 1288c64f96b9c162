"""A role's state as bytes: safetensors, with the JSON values in its metadata. No pickle, exact floats."""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from tacit.errors import ServiceError

_VERSION = "1"


def dumps(tensors: dict[str, Tensor], values: dict[str, Any]) -> bytes:
    """The bytes of a snapshot. JSON floats are written with repr, so they come back to the last bit."""
    data: bytes = safetensors.torch.save(tensors, {"tacit": _VERSION, "values": json.dumps(values)})
    return data


def loads(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `dumps` was given. Raises ServiceError when the snapshot is damaged or of another version."""
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        version, values = metadata["tacit"], json.loads(metadata["values"])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ServiceError(f"snapshot: damaged ({error})") from error
    if version != _VERSION:
        raise ServiceError(f"snapshot: version {version}, this tacit reads {_VERSION}")
    return tensors, values
