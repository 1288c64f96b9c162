"""Sums over all rows, of numbers that lie in the rows themselves: what questions are answered from.

Idea. A row's gradient is minus its vector (`models.sums_model`), so none is computed. A vector is
taken as its entries: zeros are exact, and neither read nor rounded. Cutting numbers to the grid
would cost each row up to a step, in the same direction, and a count of a million rows would be
wrong by thousands. So every entry is rounded at random, up or down, with the probabilities that
leave its mean as it is.

Guarantee. Each unit adds a vector of integers whose l2 norm is checked, exactly, to be at most
C/step; that its entries are at different places is checked, too. The vectors are added exactly. So
adding or removing a unit moves the sum by C at most, for every outcome of the rounding. The
rounding of one unit is independent of all other units. So the sums with and without a unit can be
coupled to differ by that unit's integers alone, and the noise hides those (docs/privacy.md,
"Questions").

Rounding lengthens a vector, so each is made shorter before, by the public factor `room`, which the
server divides by.

Shapes: B units at a time, R rows of each, S entries of W numbers of a vector.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows
from tacit.models.additive import AdditiveModel
from tacit.models.sums_model import SumsModel
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.rounded_sums import RoundedSums
from tacit.privacy.private_sum.sampling import rows_of_units
from tacit.questions.row_parts import Entries

_BLOCK = 2**20  # numbers worked on at a time


class SumsOfAllRows(RoundedSums):
    """The private sum over all units of an edge, with q = 1, of vectors that are made of rows."""

    way = "all rows, each rounded at random to the grid"

    def __init__(
        self, data: EdgeRows, model: SumsModel | AdditiveModel, plan: Plan, random: Random
    ) -> None:
        """Raise ValueError for a plan that samples rows."""
        if plan.sampling_rate != 1:
            raise ValueError(f"q={plan.sampling_rate}: a sum over all rows reads every row")
        super().__init__(plan, random, model.size, model.most_entries)
        self.records = data.records
        self.x = data.x
        self.y = data.y
        self.units = data.units

    def rehearsals(self) -> list[Callable[[], Clipped]]:
        """Return the sum over as many public units as this edge may have."""
        return [partial(self._sum, self._public(), self.plan.clip_max)]

    @abstractmethod
    def _entries(self, x: Tensor, y: Tensor) -> Entries:
        """Return the vectors of rows (n, *shape), each a function of its own row alone."""

    @abstractmethod
    def _public_rows(self, count: int) -> tuple[Tensor, Tensor]:
        """Return `count` random rows, of no data."""

    @property
    @abstractmethod
    def _support(self) -> int:
        """The most numbers of a row's vector that are not 0."""

    def _vectors(self) -> Iterator[Entries]:
        """Yield the units' vectors, each the sum of a unit's rows."""
        for numbers in torch.split(torch.arange(self.records), self._at_a_time):
            if self.units is None:
                yield self._entries(self.x[numbers], self.y[numbers])
            else:
                rows, weights = rows_of_units(self.units, numbers, self.random)
                flat = rows.flatten()
                yield self._added(self._entries(self.x[flat], self.y[flat]), weights)

    def _added(self, of_rows: Entries, weights: Tensor) -> Entries:
        """Return the sums of the vectors of B units' rows (B · R), weighed (B, R)."""
        values = of_rows.values * weights.reshape(-1, 1).numpy().astype(np.float32)
        sums = Entries(of_rows.places, values).summed(weights.shape[1])
        if sums.places.shape[1] <= self.width:
            return sums
        vectors = sums.dense(self.width)
        return Entries(np.broadcast_to(np.arange(self.width), vectors.shape), vectors)

    def _public(self) -> Iterator[Entries]:
        """Yield random vectors of as many units as this edge may have, of no data."""
        rows = 1 if self.units is None else self.units.limit
        x, y = self._public_rows(self._at_a_time * rows)
        for numbers in torch.split(torch.arange(self.plan.most_rows), self._at_a_time):
            count = len(numbers) * rows
            vectors = self._entries(x[:count], y[:count])
            if self.units is None:
                yield vectors
            else:
                yield self._added(vectors, torch.full((len(numbers), rows), 1 / rows))

    @property
    def _at_a_time(self) -> int:
        rows = 1 if self.units is None else self.units.limit
        return max(1, _BLOCK // (self._support * rows))


class WholeSums(SumsOfAllRows):
    """The sum of what rows have as their vectors: answers to questions."""

    def __init__(self, data: EdgeRows, model: SumsModel, plan: Plan, random: Random) -> None:
        super().__init__(data, model, plan, random)
        self.model = model

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return minus the sum over all units, each clipped to `clip`."""
        return self._sum(self._vectors(), clip)

    def _entries(self, x: Tensor, y: Tensor) -> Entries:
        return self.model.entries(x)

    def _public_rows(self, count: int) -> tuple[Tensor, Tensor]:
        return self.model.random_batch(count, torch.Generator().manual_seed(1))

    @property
    def _support(self) -> int:
        return self.model.support
