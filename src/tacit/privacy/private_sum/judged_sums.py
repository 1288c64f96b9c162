"""The sum over held-out rows of what a look counts of each, at a model that a server sends.

Guarantee. Each unit adds a vector of integers of length C/step at most, as of `RoundedSums`,
which adds, rounds and checks it. A unit's vector depends on that unit, its slot and the model
alone. As in training, units are in random slots of a batch whose size is public, and rows are
scored in parts of public shapes (docs/privacy.md, "Places" and "Judging"). That no row's scores
depend on the other rows of its part is tried before the first look.

Shapes: S units at a time, R rows of each, W numbers of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows
from tacit.judging.look_sheet import LookSheet
from tacit.models import Model
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.probe import require_separate_scores
from tacit.privacy.private_sum.rounded_sums import RoundedSums
from tacit.privacy.private_sum.sampling import placed, rows_of_units
from tacit.questions.row_parts import Entries

_HELD = 2**21  # numbers of inputs that are scored at a time
_MOST_ROWS = 4096


class JudgedSums(RoundedSums):
    """The private sum over all held-out units of an edge, with q = 1."""

    way = "held-out rows in slots, each rounded at random to the grid"

    def __init__(
        self,
        data: EdgeRows,
        model: Model,
        sheet: LookSheet,
        plan: Plan,
        random: Random,
        device: str = "cpu",
    ) -> None:
        """Raise PrivacyError for more units than the plan has slots, and as the probe does."""
        super().__init__(plan, random, sheet.width, sheet.width)
        plan.check_rows(data.records)
        self.records = data.records
        self.x = data.x
        self.units = data.units
        if data.units is not None:  # a unit counts once, however its gradient does
            self.units = replace(data.units, mean=True)
        self.model = model
        self.sheet = sheet
        self.y = data.y
        self.device = device
        limit = 1 if self.units is None else self.units.limit
        rows = min(_MOST_ROWS, max(1, _HELD // math.prod(model.shape)))
        self._slots = max(1, rows // limit)
        sizes = {min(self._slots, plan.slots), plan.slots % self._slots or self._slots}
        require_separate_scores(model, device, {size * limit for size in sizes})

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return minus the sum over all units, each clipped to `clip`, at `params` (d,)."""
        everybody = np.arange(self.records)
        index = placed(everybody, self.records, self.plan.slots, self.random).index
        parts = torch.split(index, self._slots)
        judged = self._judged(params.to(self.device), parts)
        return self._sum(map(_entries, judged), clip)

    def rehearsals(self) -> list[Callable[[], Clipped]]:
        """Return `compute` on public rows, with as many slots as always."""
        x, y = self.model.random_batch(2, torch.Generator().manual_seed(1))
        units = self.units
        if units is not None:
            units = replace(units, order=np.arange(1), starts=np.arange(2))
        public = EdgeRows(x, y, units)
        arguments = public, self.model, self.sheet, self.plan, self.random, self.device
        params = self.model.init(1)
        return [partial(JudgedSums(*arguments).compute, params, self.plan.clip_max)]

    @torch.no_grad()
    def _judged(self, params: Tensor, parts: tuple[Tensor, ...]) -> Iterator[Tensor]:
        """Yield the vectors (S, W) of units in slots; that of an empty slot is zeros."""
        for index in parts:
            if self.units is None:
                full = (index < self.records).float()[:, None]
                yield self._vectors_of(params, index) * full
            else:
                rows, weights = rows_of_units(self.units, index, self.random)
                each = self._vectors_of(params, rows.flatten()).view(*rows.shape, self.width)
                yield torch.einsum("srw,sr->sw", each, weights)

    def _vectors_of(self, params: Tensor, rows: Tensor) -> Tensor:
        scores = self.model.logits(params, self.x[rows].to(self.device)).cpu()
        return torch.from_numpy(self.sheet.vectors(_answers(self.model, scores), self.y[rows]))


def _entries(vectors: Tensor) -> Entries:
    """Return vectors (S, W) by their entries: all of them."""
    values = vectors.numpy().astype(np.float32)
    return Entries(np.broadcast_to(np.arange(values.shape[1]), values.shape), values)


def _answers(model: Model, scores: Tensor) -> Tensor:
    """Return the probabilities (n, classes), or the numbers (n,), that scores (n, …) stand for."""
    if model.squared_error:
        return scores.reshape(len(scores))
    if scores.dim() == 1 or scores.shape[-1] == 1:  # the odds of the second of two classes
        odds = scores.reshape(len(scores))
        return torch.stack((torch.sigmoid(-odds), torch.sigmoid(odds)), dim=1)
    return model.probabilities(scores)
