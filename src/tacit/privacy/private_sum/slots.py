"""Slots: a batch of a fixed public shape, each drawn row in a random place of it.

Shapes: B slots, d parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.models import Model
from tacit.models.vectors import example_gradients, linear_factors, mean_gradient
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.clipping import (
    Clipped,
    add_rows,
    clipped_sum,
    integer_sum,
    outer_sum,
)
from tacit.privacy.private_sum.rehearsal import rehearsed
from tacit.privacy.private_sum.sampling import Batch, drawer, placed, rows_of_units

# Bytes of per-example gradients (a linear model: of inputs) that an edge holds at a time.
HELD = 2**24
_SHOWN = 2**22  # numbers of the public rows that slots are rehearsed with


class Slots:
    """The sum over slots of one row each; an empty slot has the public row.

    A batch is computed in parts of public sizes, so that none needs much more memory than HELD.
    A part has `rows` units, and of each `together` rows at a time.
    """

    def __init__(
        self,
        data: EdgeRows,
        model: Model,
        plan: Plan,
        random: Random,
        device: str = "cpu",
        reason: str = "",
    ) -> None:
        """reason: why drawn rows are not computed alone, for the log."""
        self.data = data
        self.model = model
        self.plan = plan
        self.random = random
        self.device = device
        self.reason = reason
        self.records = data.records
        self.draws = drawer(data.records, plan, random)
        self.size = plan.slots
        self.x = data.x.to(device)
        self.y = data.y.to(device)
        capacity = max(1, HELD // (4 * self.numbers))
        self.rows = max(1, capacity // self.rows_of_one)
        self.together = min(capacity, self.rows_of_one)

    @property
    def numbers(self) -> int:
        """Numbers that are held for each row."""
        return self.model.size

    @property
    def rows_of_one(self) -> int:
        """The most rows of one unit that are computed for it."""
        return 1

    @property
    def way(self) -> str:
        """How a step is computed, and why not otherwise."""
        return f"{self.size} slots: {self.reason}"

    def shapes(self) -> set[int]:
        """Return the numbers of rows that are computed at a time."""
        rows = _parts(self.rows_of_one, self.together)
        return {count * each for count in _parts(self.size, self.rows) for each in rows}

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the clipped sum over the next batch."""
        batch = self.draw()
        clipped = self.clipped(params.to(self.device), clip, batch.index, batch.mask)
        return Clipped(clipped.total.cpu(), clipped.sensitivity, clipped.step)

    def draw(self) -> Batch:
        """Draw the next batch, and put it into random slots."""
        return placed(self.draws.rows(), self.records, self.size, self.random)

    def begin_pass(self) -> None:
        """Begin a pass over all units, where the plan has passes."""
        self.draws.begin()

    def clipped(self, params: Tensor, clip: float, index: Tensor, mask: Tensor) -> Clipped:
        """Return the clipped sum over the units `index` (B,) where `mask` (B,) is True."""
        mask = mask.to(self.device)
        parts = zip(torch.split(index, self.rows), torch.split(mask, self.rows), strict=True)
        sums = (self.clipped_part(params, clip, *part, len(mask)) for part in parts)
        total = next(sums)
        for part in sums:  # added as they come, so that one at a time is held
            total.total.add_(part.total)
        return total

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the clipped sum of a part of the slots; rows: slots of the whole batch."""
        gradients = self.gradients(params, index)
        step = self.plan.step(clip)
        if step is not None:
            return integer_sum(gradients, clip, mask, step)
        return clipped_sum(gradients, clip, mask, rows)

    def gradients(self, params: Tensor, index: Tensor) -> Tensor:
        """Return the gradient (B, d) of each unit in `index` (B,)."""
        index = index.to(self.device)
        return example_gradients(self.model, params, self.x[index], self.y[index])

    def mean(self, params: Tensor, index: Tensor) -> Tensor:
        """Return the mean gradient (d,) of the units `index` (B,), not clipped."""
        index = index.to(self.device)
        return mean_gradient(self.model, params, self.x[index], self.y[index])

    def rehearsals(self) -> list[Callable[[], Clipped]]:
        """Return `compute` on public rows, with as many slots as always."""
        clip = self.plan.clip_max
        return [partial(public.compute, params, clip) for params, public in self.public()]

    def public(self) -> Iterator[tuple[Tensor, Slots]]:
        """Yield parameters, and this way over public rows, the last of them in empty slots."""
        rows = max(1, min(self.plan.most_rows, _SHOWN // math.prod(self.model.shape)))
        for task in rehearsed(self.model, rows + 1):
            data = self.public_data(EdgeRows(task.x, task.y))
            plan = replace(self.plan, passes=0)  # a batch of a pass has the same shape
            yield task.params, type(self)(data, self.model, plan, self.random, self.device)

    def public_data(self, data: EdgeRows) -> EdgeRows:
        """Return public rows in the shape of the private ones."""
        return data


class OuterSlots(Slots):
    """Slots of a linear model, whose gradients are outer products and need not be written out."""

    @property
    def numbers(self) -> int:
        """Numbers that are held for each row: its input."""
        return self.model.size // self.model.classes

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the clipped sum of a part of the slots; rows: slots of the whole batch."""
        index = index.to(self.device)
        factors = linear_factors(self.model, params, self.x[index], self.y[index])
        return outer_sum(*factors, clip, mask, rows)


class UnitSlots(Slots):
    """Slots of units that may have several rows each; a unit is clipped as a whole."""

    @property
    def units(self) -> Units:
        """The units whose rows these are."""
        assert self.data.units is not None
        return self.data.units

    @property
    def rows_of_one(self) -> int:
        """The most rows of one unit that are computed for it."""
        return self.units.limit

    def gradients(self, params: Tensor, index: Tensor) -> Tensor:
        """Return the gradient (B, d) of each unit in `index` (B,), over all rows of the unit.

        A unit's rows are computed `together` at a time and added in their order. If the gradient of
        one of its rows is not finite, the unit's is not either, and counts as zero when clipped.
        """
        rows, weights = rows_of_units(self.units, index, self.random)
        total = params.new_zeros((len(index), self.model.size))
        for some, shares in zip(
            torch.split(rows, self.together, 1), torch.split(weights, self.together, 1), strict=True
        ):
            flat = some.flatten().to(self.device)
            each = example_gradients(self.model, params, self.x[flat], self.y[flat])
            add_rows(total, each, shares.to(self.device))
        return total

    def mean(self, params: Tensor, index: Tensor) -> Tensor:
        """Return the mean gradient (d,) of the units `index` (B,), not clipped."""
        sums = (self.gradients(params, part).sum(0) for part in torch.split(index, self.rows))
        return sum(sums, params.new_zeros(self.model.size)) / max(1, len(index))

    def public_data(self, data: EdgeRows) -> EdgeRows:
        """Return public rows, each a unit by itself."""
        count = len(data.y) - 1
        order = np.arange(count)
        starts = np.arange(count + 1)
        return EdgeRows(data.x, data.y, replace(self.units, order=order, starts=starts))


def _parts(count: int, most: int) -> set[int]:
    """Return the sizes of the parts that `torch.split` makes of `count`, of `most` at most."""
    return {min(count, most), count % most or min(count, most)}
