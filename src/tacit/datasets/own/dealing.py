"""The edge that a unit belongs to where one file is dealt: a function of seed and unit alone.

So one row more, or one fewer, moves no other, and all rows of a unit go to the same edge.

Where each row is a unit, rows may be alike, as in a survey of four questions. Of like rows the
first, the second, … are dealt each by itself. Which of them is the first makes no difference: they
are alike. A further like row is dealt by the next number, so it moves no other either.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from tacit.datasets.own.rows import UnitIds

_Words = npt.NDArray[np.uint64]
CopyCounts = npt.NDArray[np.int64]


def edges_of(
    units: UnitIds, *, seed: int, edges: int, copies: CopyCounts | None = None
) -> npt.NDArray[np.int64]:
    """Return the edge, in [0, edges), of each unit (n,): uniform, for all ids.

    copies: how many rows like this one came before it, where each row is a unit.
    """
    key = f"tacit dealing|{seed}|".encode()
    names = (key + unit.tobytes() for unit in units)
    if copies is not None:
        names = (name + _number(int(copy)) for name, copy in zip(names, copies, strict=True))
    words = (int.from_bytes(hashlib.sha256(name).digest()[:8]) for name in names)
    return np.fromiter((word * edges >> 64 for word in words), dtype=np.int64, count=len(units))


def _number(copy: int) -> bytes:
    """Return nothing for the first of like rows, which a row like no other is, too."""
    return copy.to_bytes(8, "little") if copy else b""


class LikeRows:
    """CopyCounts how many rows like each one came before it, block by block.

    It keeps sixteen bytes for each different row: half of its id, and a count. Ids are SHA-256, so
    two different rows of a billion have the same half with a probability below 3 %.
    """

    def __init__(self) -> None:
        self._levels: list[tuple[_Words, CopyCounts]] = []  # sorted, each at least twice the next

    def before(self, units: UnitIds) -> CopyCounts:
        """Return for each of the next rows (n,) how many rows like it came before. Counts them."""
        words = np.ascontiguousarray(units).view("<u8").reshape(-1, 2)[:, 0]
        order = np.argsort(words, kind="stable")
        different, starts, sizes = np.unique(words[order], return_index=True, return_counts=True)
        within = np.arange(len(words)) - np.repeat(starts, sizes)
        copies = np.empty(len(words), np.int64)
        copies[order] = within + np.repeat(self._counted(different), sizes)
        self._count(different, sizes.astype(np.int64))
        return copies

    def _counted(self, words: _Words) -> CopyCounts:
        total = np.zeros(len(words), np.int64)
        for level, counts in self._levels:
            places = np.searchsorted(level, words).clip(max=len(level) - 1)
            total += np.where(level[places] == words, counts[places], 0)
        return total

    def _count(self, words: _Words, counts: CopyCounts) -> None:
        if not len(words):
            return
        levels = self._levels
        levels.append((words, counts))
        while len(levels) > 1 and len(levels[-2][0]) < 2 * len(levels[-1][0]):
            merged = [np.concatenate(pair) for pair in zip(levels.pop(), levels.pop(), strict=True)]
            different, places = np.unique(merged[0], return_inverse=True)
            totals = np.zeros(len(different), np.int64)
            np.add.at(totals, places, merged[1])
            levels.append((different, totals))
