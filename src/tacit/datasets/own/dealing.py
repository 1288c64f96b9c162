"""The edge that a unit belongs to where one file is dealt: a function of seed and unit alone.

So one row more, or one fewer, moves no other, and all rows of a unit go to the same edge.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from tacit.datasets.own.rows import UnitIds


def edges_of(units: UnitIds, *, seed: int, edges: int) -> npt.NDArray[np.int64]:
    """Return the edge, in [0, edges), of each unit (n,): uniform, whatever the ids are."""
    key = f"tacit dealing|{seed}|".encode()
    words = (int.from_bytes(hashlib.sha256(key + unit.tobytes()).digest()[:8]) for unit in units)
    return np.fromiter((word * edges >> 64 for word in words), dtype=np.int64, count=len(units))
