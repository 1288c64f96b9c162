"""Poisson sampling: which rows are in a batch, and in which slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.datasets.edge_rows import Units
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan


@dataclass(frozen=True, slots=True)
class Batch:
    """A Poisson batch: every drawn row in a slot of its own, the slots chosen uniformly at random.

    index: (B,) int64, the row in each slot; in an empty slot the number of records, which is the
    public row's. mask: (B,) bool, False for empty slots. B is public. Which rows are drawn, how
    many and the time that it takes are secret: only the charged sum of the masked rows may leave
    the edge.
    """

    index: torch.Tensor
    mask: torch.Tensor


def drawn_rows(records: int, rate: float, size: int, random: Random) -> NDArray[np.int64]:
    """Draw each of `records` rows independently, and return their numbers (R,), ascending.

    The probability is floor(rate·2^64)/2^64. R is secret. Edge cases and errors are those of
    `poisson`. Of a draw above `size` a random subset is returned, in any order.
    """
    if not 0 < rate <= 1 or size < 1:
        raise ValueError(f"rate={rate}, size={size}: expected 0 < rate <= 1 and size >= 1")
    threshold = min(int(rate * 2.0**64), 2**64 - 1)
    if rate == 1:
        drawn = np.arange(records)
    else:
        drawn = np.flatnonzero(random.words(records) < np.uint64(threshold))
    if len(drawn) > size:
        drawn = drawn[random.permutation(len(drawn))[:size]]
    return drawn


def poisson(records: int, rate: float, size: int, random: Random) -> Batch:
    """Draw each of `records` rows independently, and put each drawn row into a random slot.

    A row is drawn with probability floor(rate·2^64)/2^64. No epochs, no shuffling, no minimum.

    Guarantee: inclusion is fresh and independent for every record and every call (add/remove
    adjacency, the hypothesis of the Poisson-subsampled Gaussian accountant). The slots of the drawn
    rows are a uniformly random choice of distinct ones. So the batches with and without a record
    can be coupled to be equal in all slots but the record's own. In that slot one has the record
    and the other the public row (docs/privacy.md, "Places"). A kernel's result for the other rows
    is then the same, to the bit.

    Edge cases: an empty draw is a batch of empty slots, and the caller still releases noise. Rate 1
    takes every row. A draw above `size` (probability <= TAIL for `padded_size`) is cut to a random
    subset, which the accountant pays for in δ.

    Raises ValueError unless 0 < rate <= 1 and size >= 1.
    """
    return placed(drawn_rows(records, rate, size, random), records, size, random)


def placed(drawn: NDArray[np.int64], records: int, size: int, random: Random) -> Batch:
    """Put the rows `drawn` of `records` into random slots, of which there are `size`."""
    index = np.full(size, records, dtype=np.int64)
    index[random.permutation(size)[: len(drawn)]] = drawn
    return Batch(torch.from_numpy(index), torch.from_numpy(index < records))


class PoissonDraw:
    """A fresh Poisson batch at each draw, by `drawn_rows`."""

    def __init__(self, records: int, plan: Plan, random: Random) -> None:
        self._records = records
        self._plan = plan
        self._random = random

    def begin(self) -> None:
        """Do nothing: no draw depends on another."""

    def rows(self) -> NDArray[np.int64]:
        """Return the units of the next batch (R,)."""
        return drawn_rows(self._records, self._plan.sampling_rate, self._plan.slots, self._random)


class PassDraw:
    """The disjoint batches of passes over all units.

    Guarantee: when a pass begins, each unit's batch is drawn uniformly and independently of all
    others, to within B/2^64. So batches with and without a unit differ in the unit alone. Which
    batch a unit is in, and how many are in each, is secret. A batch above `slots` (probability <=
    TAIL) is cut to a random subset.
    """

    def __init__(self, records: int, plan: Plan, random: Random) -> None:
        self._records = records
        self._plan = plan
        self._random = random
        self._batch_of = np.zeros(0, dtype=np.int64)
        self._at = plan.passes

    def begin(self) -> None:
        """Begin a pass."""
        words = self._random.words(self._records) % np.uint64(self._plan.passes)
        self._batch_of = words.astype(np.int64)
        self._at = 0

    def rows(self) -> NDArray[np.int64]:
        """Return the units of the next batch (R,). Raises ValueError where no pass has any left."""
        if self._at == self._plan.passes:
            raise ValueError("a pass must begin before its batches are drawn")
        drawn = np.flatnonzero(self._batch_of == self._at)
        self._at += 1
        size = self._plan.slots
        if len(drawn) > size:
            drawn = drawn[self._random.permutation(len(drawn))[:size]]
        return drawn


def drawer(records: int, plan: Plan, random: Random) -> PoissonDraw | PassDraw:
    """Return what draws the batches of a plan."""
    if plan.passes:
        return PassDraw(records, plan, random)
    return PoissonDraw(records, plan, random)


def rows_of_units(
    units: Units, drawn: torch.Tensor, random: Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return row numbers (B, R) of the units `drawn` (B,), and each row's weight (B, R).

    R = units.limit. A unit with fewer rows is filled up with the public row, which weighs nothing.
    Of a unit with more, R are drawn, uniformly and afresh. The number of units means an empty slot,
    as in `poisson`.

    Guarantee: the shapes, the random words that are taken and the work are functions of B and R
    alone. The result for one unit depends on no other unit and on no other slot. So the sum over
    slots of what is clipped to C has the sensitivity C for a unit with all of its rows.
    """
    which = drawn.numpy()
    most = units.limit
    ends = np.append(units.starts, units.starts[-1])  # an empty slot has no rows
    first = ends[which]
    count = ends[which + 1] - ends[which]
    place = np.arange(most)
    larger = count > most
    inside = place < np.minimum(count, most)[:, None]
    # A smaller unit has the work of a larger one done for it: the time does not tell which it is.
    some = subsets(np.where(larger, count, 2 * most), most, random)
    at = first[:, None] + np.where(larger[:, None], some, place)
    if len(units.order):
        order = units.order
    else:
        order = np.zeros(1, dtype=np.int64)
    rows = np.where(inside, order[np.where(inside, at, 0)], len(units.order))
    if units.mean:
        weights = inside / np.maximum(1, np.minimum(count, most))[:, None]
    else:
        weights = inside
    return torch.from_numpy(rows), torch.from_numpy(weights.astype(np.float32))


def subsets(counts: NDArray[np.int64], size: int, random: Random) -> NDArray[np.int64]:
    """Return (B, size): row i has `size` different numbers of 0 … counts[i]-1, ascending.

    counts >= size everywhere.

    Guarantee: every subset is equally likely, to within 2^-53·counts, and independent of the
    others. The words that are taken and the work are functions of B and `size` alone: there is no
    second try, no division, and no step for each of `counts`. Pólya's urn has counts-size+1 balls
    of different colours. A ball that is drawn goes back with another of its colour. After `size`
    draws every multiset of colours is equally likely. Adding 0, 1, 2, … to its ascending numbers
    makes of each multiset one subset, and of each subset one multiset.
    """
    colours = (counts - size + 1)[:, None]
    turn = np.arange(size)
    words = random.words(len(counts) * size).reshape(len(counts), size)
    ball = ((words >> np.uint64(11)) * 2.0**-53 * (colours + turn)).astype(np.int64)
    # One that was put back points at the draw that it came of, so at last at a first one.
    origin = np.where(ball < colours, turn, ball - colours)
    for _ in range(size.bit_length()):
        origin = np.take_along_axis(origin, origin, axis=1)
    return np.sort(np.take_along_axis(ball, origin, axis=1), axis=1) + turn
