"""The law of honest updates: a mean of bounded length plus noise of a known distribution.

An update is (a sum of `rows` clipped gradients + Gaussian noise)·scale, for all data. So the sum of
n of them is no longer than what their rows can pull plus the noise of n updates. Noise grows as √n,
a pull as n. The noise must also be present: an edge whose updates resemble each other more than
noise allows adds none, or less than it owes.

Everything is whitened, that is divided by the noise's standard deviation, so a clip or a step that
changes during a run changes nothing here.

Guarantee: `Sums.broken` accuses an edge that keeps the law with probability at most e^-t over its
whole life. This is a union bound over its tests and over n (`_level`). The means may depend on
everything before. Laurent and Massart (2000), doi:10.1214/aos/1015957395, Lemma 1, bounds the
noise; Bernstein's inequality bounds the number of rows drawn. A discrete Gaussian is taken for a
Gaussian, whose moments are no smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.rounding import beside

# Tests that share a false alarm: one update, all of them, a block, their energy, too little noise.
_TESTS = 5


@dataclass(frozen=True, slots=True)
class Law:
    """The bounds that one honest update keeps.

    pull: the most that one drawn row adds to the update's length. rows: the expected number of
    drawn rows. deviation: the noise's standard deviation in every coordinate. least: the smallest
    part of the noise's variance that must be present, for edges that may take fewer steps.
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
    """A running sum of whitened updates.

    total: the sum (d,). count: how many. squared: ‖total‖². pull, pull2, most: Σ a·rows, Σ a²·rows
    and the largest a, where one row of an update pulls by a. keep: with each update the earlier
    ones count so many times as much; below 1 the sum is of the latest, and has no `longest`.
    """

    total: Tensor
    count: int = 0
    squared: float = 0.0
    pull: float = 0.0
    pull2: float = 0.0
    most: float = 0.0
    deviation: float = 0.0  # mean of the noise, to compare lengths of edges
    keep: float = 1.0

    @classmethod
    def begin(cls, size: int, keep: float = 1.0) -> Walk:
        """Return the empty sum of updates with `size` numbers."""
        return cls(torch.zeros(size, dtype=torch.float64), keep=keep)

    @property
    def weights(self) -> tuple[float, float]:
        """Σ keep^k and Σ keep^2k over the updates: how often a mean is in the sum, and noise."""
        n = self.count
        keep = self.keep
        if keep == 1:
            return float(n), float(n)
        return (1 - keep**n) / (1 - keep), (1 - keep ** (2 * n)) / (1 - keep * keep)

    def add(self, white: Tensor, law: Law) -> None:
        """Add an update `white`, whitened (d,) float64, that should keep `law`."""
        if self.keep != 1:
            self.total = self.total * self.keep + white
        else:
            self.total = self.total + white
        self.count += 1
        self.squared = float(self.total @ self.total)
        a = law.relative
        self.pull = self.pull + a * law.rows
        self.pull2 = self.pull2 + a * a * law.rows
        self.most = max(self.most, a)
        self.deviation += (law.deviation - self.deviation) / self.weights[0]

    def longest(self, t: float) -> float:
        """Return the bound that an honest sum's length exceeds with probability at most 2·e^-t."""
        noise = math.sqrt(self.count) * (math.sqrt(len(self.total)) + math.sqrt(2 * t))
        return longest_pull(self.pull, self.pull2, self.most, t) + noise

    def mean_square(self) -> float:
        """Return an unbiased estimate of the squared length of the sum of the means."""
        return self.squared - self.weights[1] * len(self.total)

    def between(self, t: float) -> tuple[float, float]:
        """Return (lower, upper) bounds of the mean update's length, before whitening.

        Each fails with probability about e^-t: the noise along the mean is bounded as if the mean
        were known.
        """
        if not self.count:
            return 0.0, math.inf
        (times, n), d = self.weights, len(self.total)
        square = self.mean_square()
        along = 2 * math.sqrt(2 * t * n * max(square, 0.0))
        spread = 2 * n * (math.sqrt(d * t) + t) + along
        scale = self.deviation / times
        low = math.sqrt(max(0.0, square - spread))
        high = math.sqrt(max(0.0, square) + spread)
        return low * scale, high * scale


def longest_pull(pull: float, pull2: float, most: float, t: float) -> float:
    """Return the bound that the pull of all drawn rows exceeds with probability at most e^-t.

    Bernstein's inequality: Σ a·rows ≤ Σ a·m + √(2t·Σ a²·m) + a_max·t/3, for independent draws with
    expectations m.
    """
    return pull + math.sqrt(2 * t * pull2) + most * t / 3


class Sums:
    """The sums of one edge's updates, to be tested against their law.

    whole: over the edge's whole life. block: since the last `renew`. recent: of its latest
    updates, one for each `keep`. energy: Σ‖w‖² of all whitened
    updates w. owed: the noise that their spread must show, in units of d. most_one: the largest
    expected pull of one update.
    """

    def __init__(self, size: int, recent: tuple[float, ...] = ()) -> None:
        self.whole = Walk.begin(size)
        self.block = Walk.begin(size)
        self.recent = [Walk.begin(size, keep) for keep in recent]
        self.energy = 0.0
        self.owed = 0.0
        self.most_one = 0.0

    def add(self, vector: Tensor, law: Law) -> None:
        """Add an update `vector` (d,) that should keep `law`."""
        white = vector.to(torch.float64) / law.deviation
        self.whole.add(white, law)
        self.block.add(white, law)
        for walk in self.recent:
            walk.add(white, law)
        self.energy += float(white @ white)
        n = self.whole.count
        self.owed += law.least * (n - 1) / n  # Welford's weight of update n in the spread
        self.most_one = max(self.most_one, law.relative * law.rows)

    @property
    def walks(self) -> tuple[Walk, ...]:
        """All sums of this edge, the longest first."""
        return self.whole, self.block, *self.recent

    def renew(self) -> None:
        """Begin a new block."""
        self.block = Walk.begin(len(self.block.total))

    def broken(self, t: float) -> str:
        """Return which part of the law these updates break, in words; "" if they may be honest.

        t: -ln of the probability of a false alarm over this edge's whole life.
        """
        all_updates = self.whole
        level = _level(self.whole.count, t)
        for name, walk in (("all its updates", all_updates), ("its latest updates", self.block)):
            length = math.sqrt(walk.squared)
            bound = walk.longest(level)
            if walk.count and not length <= bound:
                factor = beside(length / bound, 1)
                return f"the sum of {name} ({walk.count}) is {factor} times too long"
        energy = math.sqrt(self.energy)
        bound = self._most_energy(level)
        if not energy <= bound:
            return f"its {all_updates.count} updates are {beside(energy / bound, 1)} times too long"
        spread = self.energy - all_updates.squared / max(1, all_updates.count)
        least = self._least(level)
        if spread < least:
            part = beside(math.sqrt(max(0.0, spread) / least), 1, 2)
            return f"its {all_updates.count} updates have {part} of the noise that they owe"
        return ""

    def _most_energy(self, t: float) -> float:
        n = self.whole.count
        d = len(self.whole.total)
        a = self.whole.most
        single = longest_pull(self.most_one, a * self.most_one, a, t + math.log(max(1, n)))
        return math.sqrt(n * d) + math.sqrt(2 * t) + math.sqrt(n) * single

    def _least(self, t: float) -> float:
        """Return the bound below which Σ‖w - mean‖² is with probability at most e^-t.

        It holds for all means of the updates.
        """
        d = len(self.whole.total)
        owed = self.owed
        return d * owed - 2 * math.sqrt(d * owed * t)


def _level(n: int, t: float) -> float:
    """Return the t of one test after n updates, so that all tests at all n together keep `t`.

    The n-th has the part 1/(n(n+1)) of the false alarm; these sum to 1. The 2 is for the two ways
    in which one test can fail.
    """
    return t + math.log(2 * _TESTS * max(1, n) * (max(1, n) + 1))
