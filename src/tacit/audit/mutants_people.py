"""Slots that protect a row where they promise to protect a person, which the audit must catch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.models.vectors import example_gradients
from tacit.privacy.private_sum.clipping import Clipped, clipped_sum
from tacit.privacy.private_sum.sampling import Batch, poisson, rows_of_units
from tacit.privacy.private_sum.slots import UnitSlots


class RowsClipped(UnitSlots):
    """Clips each row of a person by itself and adds them: together they are 50 C long."""

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the sum of a part whose rows, not people, are clipped."""
        unit_rows, weights = rows_of_units(self.units, index, self.random)
        flat = unit_rows.flatten()
        each = example_gradients(self.model, params, self.x[flat], self.y[flat])
        return clipped_sum(each, clip, (weights > 0).flatten(), rows * self.units.limit)


class RowsDrawn(UnitSlots):
    """Gives each row a coin of its own, and takes a person with any row that was drawn.

    Each is still clipped as one, but who has many rows is in nearly every batch.
    """

    def draw(self) -> Batch:
        """Draw the people of a Poisson batch of rows."""
        rate = self.plan.sampling_rate
        random = self.random
        count = len(self.y) - 1
        drawn = poisson(count, rate, count, random)
        place = drawn.index[drawn.mask].numpy()
        people = np.unique(np.searchsorted(self.units.starts, place, side="right") - 1)[: self.size]
        index = np.full(self.size, self.records, dtype=np.int64)
        index[random.permutation(self.size)[: len(people)]] = people
        return Batch(torch.from_numpy(index), torch.from_numpy(index < self.records))


def rows_dealt(units: npt.NDArray[np.void], *, seed: int, edges: int) -> npt.NDArray[np.int64]:
    """Deal rows one after the other, also those of one person: a person is at every edge."""
    return np.arange(len(units)) % edges
