"""A sketch of a file's units and rows: enough to tell whether another file has the same ones.

It is the `KEPT` smallest of the keyed 64-bit hashes of what a file holds, and of each whether the
file holds it more than once. Below its last hash a sketch is complete. So two sketches are compared
below the smaller of their last hashes, where each is a uniform sample of what its file holds. A
file with at most `KEPT` different units is compared exactly.

Within that range let m be the entries of the sketch that has fewer there, and h what both have. h /
m estimates which share of the smaller file is in the other, with a standard error of sqrt(share (1
- share) / m). Of two files of one size, m is `KEPT`. Of a file and one r times larger it is `KEPT`
/ r. Two hashes of different units are equal with a chance of 2^-64 for each pair.

**Ids.** Two files have people in common where h is at least 3 and above 3 % of m. With m = 4,096 a
true share of 2 % passes for more with a chance of 1.2e-5. A share of 4 % passes for less with 3e-4,
and one of 5 % with 1.2e-10. If all of a file is in one r times larger, m = h. Then fewer than 3 are
there with a chance of 1.7e-5 at r = 256, and of 23 % at r = 1,000.

**Rows.** Rows of other people may be alike: two honest samples of a survey with 32 different rows
have all in common. So the effect of chance is bounded by its effect within each file. Let a row's
kind come up Poisson(x) times in one file and Poisson(y) in the other, as in independent samples of
any one population. Let t(z) = 1 - exp(-z) - z exp(-z) be the chance that a kind comes up twice in
one file. As 1 - 2z exp(-z) - exp(-2z) >= 0, (1 - exp(-z))^2 is at most twice t(z). So (1 - exp(-x))
(1 - exp(-y)) <= t(x) + t(y). Hence E[h] <= E[T], where T counts the kinds that come up twice in one
file, for both files. h and T grow with the same independent counts, so they are positively
associated (Harris). By the tails of sums of independent events, P(h >= a and T <= b) <=
exp(-(sqrt(a) - sqrt(b))^2 / 2) for a >= b. Two files have rows in common if that is below exp(-18)
and (h - T) / m is above 3 %. Chance reaches the first once in 6e7 comparisons. This assumes that
rows come up independently. If repeats were taken out (SELECT DISTINCT, a row for each group), T is
0 however alike rows are. Then honest files of few kinds are taken for the same rows. People share a
budget without need, and nobody gets a second one. A file with fewer than 37 kinds, or with twins of
most of its rows, is not known by its rows: `tells`. Let sketches be merged of s files with nothing
in common. Each pair of those may share as much, so T counts s times, and the bound is exp(-(sqrt(a)
- sqrt(b))^2 / (1 + s)).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT = 4096
_SHARE = 0.03
_FEWEST = 3
_BEYOND_CHANCE = 18.0  # -ln of the chance
_LAST = np.uint64((1 << 64) - 1)

Sixteen = npt.NDArray[np.void]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Some rows of a file, 16 bytes each.

    rows: what a row holds, by its values. units: whose it is; None where each row is a unit by
    itself.
    """

    rows: Sixteen
    units: Sixteen | None


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """The smallest hashes of what a file holds, ascending, and which of it has a twin there.

    times: how many files with nothing in common it was merged of.
    """

    hashes: Hashes
    twins: npt.NDArray[np.bool_]
    times: int = 1

    @property
    def end(self) -> np.uint64:
        """The largest hash up to which nothing is left out."""
        if len(self.hashes) < KEPT:
            return _LAST
        return np.uint64(self.hashes[-1])

    @property
    def tells(self) -> bool:
        """Whether a copy would be known by its rows."""
        times = self.times**2
        return _beyond_chance(len(self.hashes), 2 * times * int(self.twins.sum()), times)


@dataclass(frozen=True, slots=True, eq=False)
class Sketches:
    """The sketches of one file: of its rows and, where it has a unit column, of its units."""

    rows: Sketch
    units: Sketch | None


@dataclass(frozen=True, slots=True)
class SharedRows:
    """What two files have in common.

    same: whether more than chance gives. share: of the smaller one, about, beyond chance; alike:
    with what chance may give.
    """

    same: bool
    share: float
    alike: float


def sketched(marks: Iterable[Marks], key: bytes) -> Sketches:
    """Return the sketches of `marks`, in bounded memory.

    Without `key` (32 bytes) nobody can tell whether a sketch has a unit that they guess.
    """
    rows = _Smallest(key)
    units = _Smallest(key)
    by_row = True
    for part in marks:
        rows.see(part.rows)
        if part.units is not None:
            by_row = False
            units.see(part.units)
    return Sketches(rows.sketch(), None if by_row else units.sketch())


def merged(first: Sketches, second: Sketches) -> Sketches:
    """Return the sketches of both files together."""
    units = [each.units for each in (first, second) if each.units is not None]
    return Sketches(
        _merged(first.rows, second.rows),
        _merged(*units) if len(units) == 2 else next(iter(units), None),
    )


def shared_units(first: Sketches, second: Sketches) -> SharedRows:
    """Compare two files' people, by their ids."""
    if first.units is None or second.units is None:
        return SharedRows(same=False, share=0.0, alike=0.0)
    least, both, _ = _compared(first.units, second.units)
    share = both / least if least else 0.0
    return SharedRows(both >= _FEWEST and share > _SHARE, share, share)


def shared_rows(first: Sketches, second: Sketches) -> SharedRows:
    """Compare two files' rows: common are more than chance gives to rows that are alike."""
    return _rows(first.rows, second.rows)


def _rows(first: Sketch, second: Sketch) -> SharedRows:
    least, both, twins = _compared(first, second)
    times = first.times * second.times
    if least:
        share = max(0, both - times * twins) / least
    else:
        share = 0.0
    same = _beyond_chance(both, times * twins, times) and share > _SHARE
    return SharedRows(same, share, both / least if least else 0.0)


def _beyond_chance(both: int, twins: int, times: int) -> bool:
    exponent = (math.sqrt(both) - math.sqrt(twins)) ** 2 / (1 + times)
    return both > twins and exponent > _BEYOND_CHANCE


def packed(sketch: Sketch) -> dict[str, Any]:
    """Return the sketch as JSON has it."""
    return {
        "hashes": sketch.hashes.astype("<u8").tobytes().hex(),
        "twins": np.packbits(sketch.twins).tobytes().hex(),
        "times": sketch.times,
    }


def unpacked(content: dict[str, Any]) -> Sketch:
    """Return what `packed` gave. Raises KeyError, TypeError, ValueError for anything else."""
    hashes = np.frombuffer(bytes.fromhex(content["hashes"]), "<u8").astype(np.uint64)
    bits = np.frombuffer(bytes.fromhex(content["twins"]), np.uint8)
    twins = np.unpackbits(bits, count=len(hashes)).astype(np.bool_)
    if len(hashes) > KEPT or bool((hashes[1:] <= hashes[:-1]).any()):
        raise ValueError("hashes are not ascending")
    return Sketch(hashes, twins, int(content["times"]))


class _Smallest:
    """The smallest hashes of all that was seen, and how often each came up.

    A hash that is among the smallest at the end was so from its first time on, so it is counted
    right.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._hashes: Hashes = np.empty(0, np.uint64)
        self._counts: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def see(self, marks: Sixteen) -> None:
        content = marks.tobytes()
        key = self._key
        size = marks.dtype.itemsize
        digests = b"".join(
            hashlib.blake2b(content[at : at + size], digest_size=8, key=key).digest()
            for at in range(0, len(content), size)
        )
        hashes = np.frombuffer(digests, "<u8").astype(np.uint64)
        if len(self._hashes) == KEPT:
            hashes = hashes[hashes <= self._hashes[-1]]
        fresh, counts = np.unique(hashes, return_counts=True)
        every, places = np.unique(np.concatenate([self._hashes, fresh]), return_inverse=True)
        sums = np.zeros(len(every), np.int64)
        np.add.at(sums, places, np.concatenate([self._counts, counts]))
        self._hashes = every[:KEPT]
        self._counts = sums[:KEPT]

    def sketch(self) -> Sketch:
        return Sketch(self._hashes, self._counts > 1)


def _merged(first: Sketch, second: Sketch) -> Sketch:
    """Merge two sketches: a file that has grown counts once, any other pair twice."""
    every, places = np.unique(np.concatenate([first.hashes, second.hashes]), return_inverse=True)
    twins = np.zeros(len(every), np.bool_)
    np.logical_or.at(twins, places, np.concatenate([first.twins, second.twins]))
    if _rows(first, second).same:
        times = max(first.times, second.times)
    else:
        times = first.times + second.times
    return Sketch(every[:KEPT], twins[:KEPT], times)


def _compared(first: Sketch, second: Sketch) -> tuple[int, int, int]:
    """Return entries of the sketch with fewer, what both have, and the twins of both."""
    end = min(first.end, second.end)
    ours = first.hashes <= end
    theirs = second.hashes <= end
    both = len(np.intersect1d(first.hashes[ours], second.hashes[theirs], assume_unique=True))
    twins = int(first.twins[ours].sum()) + int(second.twins[theirs].sum())
    return min(int(ours.sum()), int(theirs.sum())), both, twins
