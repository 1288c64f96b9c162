"""What an honest update can be, whatever its data: a short mean, and noise of a known law.

An update is (a sum of `rows` clipped gradients + Gaussian noise)·scale. So the sum of n of them is
no longer than what so many rows can pull and what n times the noise adds up to. Noise grows as √n,
a pull as n. And the noise must be there: an edge whose updates resemble each other more than noise
allows adds none, or less than it owes.

Everything is whitened: divided by the noise's deviation, so that a clip or a step that changes on
the way changes nothing here.

Guarantee: `Sums.broken` accuses an edge that keeps the law with probability e^-t at most, over its
whole life: a union over its tests and over n, as `_level` spends it. The means may depend on all
that was before. Laurent and Massart (2000), Lemma 1, bounds the noise; Bernstein's inequality
the rows. A discrete Gaussian is taken for a Gaussian, whose moments are no smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_TESTS = 5  # that share a level: single, sum, block, energy, too little


@dataclass(frozen=True, slots=True)
class Law:
    """One honest update: a mean of at most `pull` for each row drawn, of which `rows` are expected,
    and noise of standard deviation `deviation` in every coordinate.

    least: what part of that variance is there at least, where the edge may take fewer steps.
    """

    pull: float
    rows: float
    deviation: float
    least: float = 1.0

    @property
    def relative(self) -> float:
        """The pull of one row, in deviations of the noise."""
        return self.pull / self.deviation


@dataclass(slots=True)
class Walk:
    """A sum of whitened updates: how many, the sum (d,), its squared length, and its rows.

    pull, pull2, most: Σ a·rows, Σ a²·rows and the largest a, for rows that pull by a each.
    """

    total: Tensor
    count: int = 0
    squared: float = 0.0
    pull: float = 0.0
    pull2: float = 0.0
    most: float = 0.0
    deviation: float = 0.0  # mean of the noise, to compare lengths of edges

    @classmethod
    def begin(cls, size: int) -> Walk:
        """No update yet."""
        return cls(torch.zeros(size, dtype=torch.float64))

    def add(self, white: Tensor, law: Law) -> None:
        """One more update, whitened (d,) float64."""
        self.total = self.total + white
        self.count += 1
        self.squared = float(self.total @ self.total)
        a = law.relative
        self.pull, self.pull2 = self.pull + a * law.rows, self.pull2 + a * a * law.rows
        self.most = max(self.most, a)
        self.deviation += (law.deviation - self.deviation) / self.count

    def longest(self, t: float) -> float:
        """What an honest sum is longer than with probability 2·e^-t at most."""
        noise = math.sqrt(self.count) * (math.sqrt(len(self.total)) + math.sqrt(2 * t))
        return longest_pull(self.pull, self.pull2, self.most, t) + noise

    def mean_square(self) -> float:
        """An unbiased estimate of the squared length of the sum of the means."""
        return self.squared - self.count * len(self.total)

    def between(self, t: float) -> tuple[float, float]:
        """Bounds of the length of the mean update, in its own unit; each fails with e^-t at most,
        nearly (the noise's part along the mean is counted as if the mean were known).
        """
        n, d = self.count, len(self.total)
        square = self.mean_square()
        along = 2 * math.sqrt(2 * t * n * max(square, 0.0))
        spread = 2 * n * (math.sqrt(d * t) + t) + along
        scale = self.deviation / max(1, n)
        low, high = math.sqrt(max(0.0, square - spread)), math.sqrt(max(0.0, square) + spread)
        return low * scale, high * scale


def longest_pull(pull: float, pull2: float, most: float, t: float) -> float:
    """What the rows of some updates pull by at most, but for probability e^-t (Bernstein).

    Σ a·rows ≤ Σ a·m + √(2t·Σ a²·m) + a_max·t/3, for independent draws with expectations m.
    """
    return pull + math.sqrt(2 * t * pull2) + most * t / 3


class Sums:
    """One edge's updates against their law: `whole` of its life, `block` since the last renewal.

    energy: Σ‖w‖² of the whole life.
    """

    def __init__(self, size: int) -> None:
        self.whole, self.block = Walk.begin(size), Walk.begin(size)
        self.energy, self.owed, self.most_one = 0.0, 0.0, 0.0

    def add(self, vector: Tensor, law: Law) -> None:
        """One more update (d,)."""
        white = vector.to(torch.float64) / law.deviation
        self.whole.add(white, law)
        self.block.add(white, law)
        self.energy += float(white @ white)
        n = self.whole.count
        self.owed += law.least * (n - 1) / n  # of d: Welford's weight of this update's noise
        self.most_one = max(self.most_one, law.relative * law.rows)

    def renew(self) -> None:
        """Begin a new block."""
        self.block = Walk.begin(len(self.block.total))

    def broken(self, t: float) -> str:
        """Which part of the law these updates break, in words; "" where they may be honest.

        t: the false alarm's -ln, for the whole life of this edge.
        """
        whole, level = self.whole, _level(self.whole.count, t)
        for name, walk in (("all its updates", whole), ("its latest updates", self.block)):
            length, bound = math.sqrt(walk.squared), walk.longest(level)
            if walk.count and not length <= bound:
                return f"the sum of {name} ({walk.count}) is {length / bound:.3g} times too long"
        energy, bound = math.sqrt(self.energy), self._most_energy(level)
        if not energy <= bound:
            return f"its {whole.count} updates are {energy / bound:.3g} times too long"
        spread, least = self.energy - whole.squared / max(1, whole.count), self._least(level)
        if spread < least:
            part = math.sqrt(max(0.0, spread) / least)
            return f"its {whole.count} updates have {part:.2g} of the noise that they owe"
        return ""

    def _most_energy(self, t: float) -> float:
        n, d = self.whole.count, len(self.whole.total)
        a = self.whole.most
        one = longest_pull(self.most_one, a * self.most_one, a, t + math.log(max(1, n)))
        return math.sqrt(n * d) + math.sqrt(2 * t) + math.sqrt(n) * one

    def _least(self, t: float) -> float:
        """What Σ‖w - mean‖² is below with probability e^-t at most, whatever the means."""
        d, owed = len(self.whole.total), self.owed
        return d * owed - 2 * math.sqrt(d * owed * t)


def _level(n: int, t: float) -> float:
    """t of one test after n updates, so that all tests together keep t: Σ 1/(n(n+1)) = 1.

    The 2 is for the two ways in which one test can fail.
    """
    return t + math.log(2 * _TESTS * max(1, n) * (max(1, n) + 1))
