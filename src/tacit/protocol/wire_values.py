"""Checks and conversions of values that several messages have."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tacit.errors import WireError

# characters kept of a sender's text
MAX_REASON = 200
MAX_MECHANISM = 40


def finite(name: str, value: float) -> float:
    """Return `value` if it is a finite number >= 0; else WireError ("value") with its name."""
    if not 0 <= value < float("inf"):
        raise WireError("value", f"{name}={value}")
    return value


def pack_rows(rows: Tensor) -> bytes:
    """Return the numbers of rows, int64 (b,), as uint32 little-endian."""
    return rows.numpy().astype("<u4").tobytes()


def read_rows(packed: bytes) -> Tensor:
    """Return the numbers of rows, int64 (b,). Raises WireError ("value")."""
    if len(packed) % 4:
        raise WireError("value", f"rows: {len(packed)} bytes are no whole numbers")
    return torch.from_numpy(np.frombuffer(packed, dtype="<u4").astype(np.int64))
