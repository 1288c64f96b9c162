"""Sums of vectors that are rounded at random to the grid of the noise: of questions, and of looks.

Guarantee. Each vector becomes integers whose l2 norm is checked, exactly, to be at most C/step. The
vectors are added exactly. `tacit.privacy.private_sum.whole_sums` gives the reason for the rounding.

Shapes: vectors by their entries (B, S), of a width W.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.clipping import Clipped, steps_limit
from tacit.questions.row_parts import Entries

_WORD = 2.0**32
_CHANCE = 10.0  # standard deviations of a rounded vector's squared length

Integers = NDArray[np.int64]


class RoundedSums:
    """What adds up vectors of `width` numbers, of which `entries` at most are not 0."""

    def __init__(self, plan: Plan, random: Random, width: int, entries: int) -> None:
        self.plan = plan
        self.random = random
        self.width = width
        self._shorter = room(plan, entries)

    def begin_pass(self) -> None:
        """Do nothing: there are no passes."""

    def _sum(self, vectors: Iterable[Entries], clip: float) -> Clipped:
        step = self.plan.step(clip)
        assert step is not None
        total = np.zeros(self.width, np.int64)
        for block in vectors:
            rounded = self._rounded(block, clip, step)
            # In float64 a block's sum is exact: its integers are at most 2^12 each.
            total -= np.bincount(
                block.places.ravel(), rounded.ravel(), minlength=len(total)
            ).astype(np.int64)
        return Clipped(torch.from_numpy(total), clip, step)

    def _rounded(self, vectors: Entries, clip: float, step: float) -> Integers:
        """Return each vector's entries (B, S) in whole steps, no vector longer than clip/step.

        One that is not finite, or has two entries at one place, becomes zeros. One that rounding
        makes too long, which `room` leaves to a rare chance, is cut toward zero.
        """
        sound: NDArray[np.bool_] = np.all(np.isfinite(vectors.values), axis=1)
        apart = np.diff(vectors.places, axis=1)
        sound &= np.all((apart > 0) | ((apart == 0) & (vectors.values[:, :-1] == 0)), axis=1)
        plain = np.where(sound[:, None], vectors.values.astype(np.float64), 0.0)
        norms = np.linalg.norm(plain, axis=1)
        shorter = self._shorter * clip / np.maximum(norms, clip)
        scaled = plain * (shorter / step)[:, None]
        below = np.floor(scaled)
        words = np.frombuffer(self.random.bytes(4 * scaled.size), "<u4").reshape(scaled.shape)
        rounded = (below + (words < (scaled - below) * _WORD)).astype(np.int64)
        limit = steps_limit(clip, step)
        cut = np.where(_fits(rounded, limit)[:, None], rounded, np.trunc(scaled).astype(np.int64))
        return np.where(_fits(cut, limit)[:, None], cut, 0)


def room(plan: Plan, entries: int) -> float:
    """Return the factor by which a vector of so many entries is made shorter; 1 without a grid.

    In units of C let s be a step, v the vector and e what rounding adds to it. The square of the
    length grows by 2v·e + |e|². An entry that is a part f of a step above the grid moves by -fs or
    (1-f)s. That is nothing on average, with the variance s²f(1-f) <= s²/4. So |e|² is at most
    s²·entries/4 on average, and 2v·e has a standard deviation of s at most. A number that is 0 is
    on the grid, f = 0. So entries count, and not the width.
    """
    step = plan.step(1.0)
    if step is None:
        return 1.0
    return math.sqrt(max(0.25, 1 - step**2 * entries / 4 - _CHANCE * step))


def _fits(integers: Integers, limit: int) -> NDArray[np.bool_]:
    """Check exactly that the sum of each row's squares is at most `limit`."""
    most = math.isqrt(limit)
    small: NDArray[np.bool_] = np.all(np.abs(integers) <= most, axis=1)
    squares = np.square(np.clip(integers, -most, most)).sum(axis=1)
    fits: NDArray[np.bool_] = small & (squares <= limit)
    return fits
