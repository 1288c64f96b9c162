"""Histograms of residuals over all rows of an edge: what an additive model is boosted with.

Idea. A row's gradient is its residual at its bins and 0 elsewhere (`models.additive`). So the sum
of the gradients is a histogram of residuals over the bins of every column at once, of each class.
It is added up as the answers to questions are (`private_sum.whole_sums`): by entries, each rounded
at random to the grid of the noise.

Guarantee. That of `whole_sums`: adding or removing a unit, with all of its rows, moves the sum by C
at most. It needs that a unit's vector is a function of its own rows, of the parameters and of
public constants alone, to the bit. `AdditiveModel.residuals` computes each number by itself. So
a row moves the histogram by C at most, also at a model that a hostile server has sent. A row is in
one bin of each of K columns, and pays for all of them together: its vector is as long as its
residual. Pairs of columns are paid for in the same way. If a server sends other shares, then the
vector is still clipped as a whole.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows
from tacit.models.additive import AdditiveModel
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.whole_sums import SumsOfAllRows
from tacit.questions.row_parts import Entries


class HistogramSums(SumsOfAllRows):
    """The histogram of clipped residuals over all units of an edge, with q = 1."""

    way = "histograms over all rows, each rounded at random to the grid"

    def __init__(self, data: EdgeRows, model: AdditiveModel, plan: Plan, random: Random) -> None:
        super().__init__(data, model, plan, random)
        self.model = model
        self._params = model.covering_all()

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the sum of all units' gradients at `params` (d,), each clipped to `clip`."""
        self._params = params
        return self._sum(self._vectors(), clip)

    def _entries(self, x: Tensor, y: Tensor) -> Entries:
        return self.model.residuals(self._params, x, y)

    def _public_rows(self, count: int) -> tuple[Tensor, Tensor]:
        return self.model.random_batch(count, torch.Generator().manual_seed(1))

    @property
    def _support(self) -> int:
        return self.model.most_entries
