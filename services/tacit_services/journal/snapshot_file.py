"""A role's state as bytes: safetensors, with JSON values in its metadata.

    "TCTSTAT1" | XXH3-64 of the rest | safetensors

There is no pickle, and floats are exact. The checksum is there because safetensors has none: a
flipped bit in a tensor would silently be another model.
"""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
import torch
import xxhash
from safetensors import SafetensorError
from torch import Tensor

from tacit.errors import ServiceError

_VERSION, _MAGIC = "1", b"TCTSTAT1"
_HEAD = len(_MAGIC) + 8
_DTYPES = {  # as safetensors calls them
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def dumps(tensors: dict[str, Tensor], values: dict[str, Any]) -> bytes:
    """The bytes of a snapshot.

    JSON floats are written with repr, so they come back to the last bit.
    """
    return b"".join(pieces(tensors, json.dumps(values)))


def pieces(tensors: dict[str, Tensor], values: str) -> list[bytes | memoryview]:
    """The bytes of a snapshot whose values are this JSON, one behind the other.

    No tensor is copied, if it is on the CPU and contiguous: nothing may be written into it
    meanwhile. Longest numbers first, so that none of them is out of line in the file.
    """
    named = sorted(tensors.items(), key=lambda one: (-one[1].element_size(), one[0]))
    header: dict[str, Any] = {"__metadata__": {"tacit": _VERSION, "values": values}}
    bodies: list[memoryview] = []
    end = 0
    for name, tensor in named:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        shape, offsets = list(tensor.shape), [begin, end]
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": shape, "data_offsets": offsets}
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        bodies.append(flat.view(torch.uint8).numpy().data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    parts: list[bytes | memoryview] = [len(text).to_bytes(8, "little"), text, *bodies]
    check = xxhash.xxh3_64()
    for part in parts:
        check.update(part)
    return [_MAGIC, check.digest(), *parts]


def loads(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and values that `dumps` was given.

    Raises ServiceError where the snapshot is damaged or of another version.
    """
    if data.startswith(_MAGIC):  # an early one begins with a length, and has no checksum
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
    """The metadata of a safetensors file, given its bytes.

    Raises ValueError where they are not such a file.
    """
    header: dict[str, dict[str, str]] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header.get("__metadata__", {})
