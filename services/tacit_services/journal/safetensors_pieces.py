"""A safetensors file in pieces, of which no tensor is copied.

Where all tensors have one dtype, the bytes are those of the safetensors library, which builds the
whole file in memory twice over. Others are in another order, which any reader takes.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

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


def pieces(
    tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> list[bytes | memoryview]:
    """Return the bytes of the file, one piece behind the other.

    A tensor that is on the CPU and contiguous is not copied: nothing may be written into it
    meanwhile. Longest numbers first, so that none of them is out of line in the file.
    """
    ordered = sorted(tensors.items(), key=lambda entry: (-entry[1].element_size(), entry[0]))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    bodies: list[memoryview] = []
    end = 0
    for name, tensor in ordered:
        begin = end
        end = end + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        offsets = [begin, end]
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": shape, "data_offsets": offsets}
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        bodies.append(flat.view(torch.uint8).numpy().data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *bodies]
