"""Which units an edge holds out of training, to judge models on them: by a keyed hash of each.

Guarantee. A unit's side is a function of its id, the key and the share alone. So one unit more, or
one fewer, moves no other to the other side; a place in the file, a rank or an exact share would.
The key is secret, and of one ledger: so nobody can choose an id for a side.

Where each row is a unit, rows may be alike. Of like rows the first, the second, … have a side each,
as of dealing (`tacit.datasets.own.dealing`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit.datasets.benchmarks.load import Dataset

_WORD = 8  # bytes of a hash that are compared with the share
Sides = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class UnitSplit:
    """The division of an edge's units. key: secret. share: of the units that are held out."""

    key: bytes
    share: float

    def held(self, units: Iterable[bytes]) -> Sides:
        """Return for each unit (n,) whether it is held out. units: their ids."""
        limit = int(self.share * 2.0 ** (8 * _WORD))
        words = (hashlib.blake2b(unit, digest_size=_WORD, key=self.key).digest() for unit in units)
        return np.fromiter((int.from_bytes(word) < limit for word in words), np.bool_)

    def digest(self) -> str:
        """Return what tells this split from another, in hexadecimal, without the key."""
        content = b"tacit split" + self.share.hex().encode() + b"|" + self.key
        return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class SplitHalf:
    """The units of one side of a split."""

    split: UnitSplit
    held: bool

    def mask(self, units: Iterable[bytes]) -> Sides:
        """Return for each unit (n,) whether it is on this side."""
        sides = self.split.held(units)
        return sides if self.held else ~sides


def numbered(ids: Iterable[bytes], copies: Iterable[int]) -> Iterable[bytes]:
    """Return ids in which like ones differ. copies: how many like each one came before it."""
    return (
        id_ + copy.to_bytes(8, "little") if copy else id_
        for id_, copy in zip(ids, copies, strict=True)
    )


def divided(rows: Dataset, split: UnitSplit) -> tuple[Dataset, Dataset]:
    """Return published rows that are trained on, and those that are held out.

    A row is known by all that it holds.
    """
    ids = [
        hashlib.sha256(x.tobytes() + y.tobytes()).digest()
        for x, y in zip(rows.x.numpy(), rows.y.numpy(), strict=True)
    ]
    counts: dict[bytes, int] = {}
    copies = []
    for each in ids:
        copies.append(counts.get(each, 0))
        counts[each] = copies[-1] + 1
    on_side = split.held(numbered(ids, copies))
    trained, judged = (torch.from_numpy(np.flatnonzero(s)) for s in (~on_side, on_side))
    return rows.take(trained), rows.take(judged)
