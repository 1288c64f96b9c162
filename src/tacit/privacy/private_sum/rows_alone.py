"""The way of drawn rows alone: each is computed by itself, and only they are.

Shapes: R drawn rows or units, d parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows
from tacit.kernels.loading import library
from tacit.models import Model
from tacit.models.graph.graph_model import GraphModel
from tacit.models.graph.layers_in_a_row import layers_in_a_row
from tacit.models.vectors import maps
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan, padded_size
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.rehearsal import Rehearsed, rehearsed
from tacit.privacy.private_sum.row_by_row import GraphSums
from tacit.privacy.private_sum.row_sums import Drawn, DrawnSums, RowSums, SumTerms, row_kernel
from tacit.privacy.private_sum.sampling import drawer, rows_of_units
from tacit.privacy.private_sum.way import NotAlone

_FAR = 1e-9  # probability that a draw has more rows than a push's delay is made for


class RowsAlone:
    """The private sum over a fresh draw, of which nothing but the drawn rows is computed.

    The time of a step grows with the number of rows drawn, which is secret: so messages must leave
    at a time that does not depend on it.
    """

    def __init__(self, data: EdgeRows, model: Model, plan: Plan, random: Random) -> None:
        """Raise NotAlone where the model or this machine does not allow it."""
        self.model = model
        self.plan = plan
        self.random = random
        self.records = data.records
        self.draws = drawer(data.records, plan, random)
        self.size = plan.slots
        self.x = data.x
        self.y = data.y
        self.units = data.units
        self.sums = self.sums_of(model)

    @property
    def way(self) -> str:
        """How a step is computed."""
        return self.sums.way

    def sums_of(self, model: Model) -> DrawnSums:
        """Return what adds up rows of this model, or of its units. Raises NotAlone."""
        if not isinstance(model, GraphModel):
            return self._by_kernels(model)
        if (network := layers_in_a_row(model)) is not None and library() is not None:
            return self._by_kernels(network)
        if self.units is None and row_kernel(model) is not None:
            return self._by_kernels(model)
        if model.small and maps(model):
            raise NotAlone("its operations are small, and quicker for several rows together")
        return GraphSums(model)

    def _by_kernels(self, model: Model) -> RowSums:
        if self.units is not None:
            raise NotAlone("a unit may have several rows")
        return RowSums.checked(model)

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the clipped sum over the units of a fresh draw, and no others."""
        drawn = self.draw()
        if self.units is None:
            return self._sum(params, Drawn(self.x, self.y, drawn), clip)
        rows, weights = rows_of_units(self.units, torch.from_numpy(drawn), self.random)
        return self._sum(params, Drawn(self.x, self.y, rows.numpy(), weights), clip)

    def draw(self) -> NDArray[np.int64]:
        """Draw the units of the next batch, without slots: their numbers (R,)."""
        return self.draws.rows()

    def begin_pass(self) -> None:
        """Begin a pass over all units, where the plan has passes."""
        self.draws.begin()

    def rehearsals(self) -> list[Callable[[], Clipped]]:
        """Return the sum over as many public units as a draw exceeds with probability 1e-9."""
        count = padded_size(self.plan.most_rows, self.plan.sampling_rate, _FAR)
        each = 1 if self.units is None else self.units.limit
        return [
            partial(self._sum, task.params, self._public(task, count), self.plan.clip_max)
            for task in rehearsed(self.model, count * each)
        ]

    def _public(self, task: Rehearsed, count: int) -> Drawn:
        """Return public rows as if they were drawn: each unit has as many as one ever has."""
        index = np.arange(len(task.y))
        if self.units is None:
            return Drawn(task.x, task.y, index)
        rows = index.reshape(count, -1)
        return Drawn(task.x, task.y, rows, torch.ones(rows.shape))

    def _sum(self, params: Tensor, drawn: Drawn, clip: float) -> Clipped:
        return self.sums.sum(params, drawn, SumTerms(clip, self.plan.step(clip), self.size))
