"""Ways to take rows through a graph one by one, with an operation that is no function of its row.

The closed list of operations has none like these (`tacit.graphs.operations`). The audit must
catch each of them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from tacit.models import Model
from tacit.models.graph.graph_model import GraphModel
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.row_by_row import GraphSums
from tacit.privacy.private_sum.row_sums import Drawn, SumTerms
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.way import NotAlone

_SEED = 40  # of a mask that treats the rows behind the record otherwise once they move


class _Sums(GraphSums):
    """Puts an operation between a row and the graph."""

    def sum(self, params: Tensor, drawn: Drawn, terms: SumTerms) -> Clipped:
        """Return the sum over drawn rows, each changed by the operation."""
        self.begin(drawn)
        return super().sum(params, drawn, terms)

    def begin(self, drawn: Drawn) -> None:
        """See the drawn rows of a push, before the first of them."""

    def operation(self, x: Tensor) -> Tensor:
        """Return a row (1, …) as the graph gets it."""
        raise NotImplementedError

    def _row(self, drawn: Drawn, place: np.int64) -> tuple[Tensor, Tensor]:
        x, y = super()._row(drawn, place)
        return self.operation(x), y


class _Counting(_Sums):
    def begin(self, drawn: Drawn) -> None:
        """Count anew."""
        self._before = 0

    def operation(self, x: Tensor) -> Tensor:
        """Return every second row, and zeros for the others."""
        changed = x * (self._before % 2)
        self._before += 1
        return changed


class _Drawing(_Sums):
    def begin(self, drawn: Drawn) -> None:
        """Begin at the same place of the same stream, as a seed for each step does."""
        self._generator = torch.Generator().manual_seed(_SEED)

    def operation(self, x: Tensor) -> Tensor:
        """Return the row, or zeros, by a coin."""
        return x * (torch.rand((), generator=self._generator) < 0.5)


class _Mixing(_Sums):
    def begin(self, drawn: Drawn) -> None:
        """Add up the drawn rows' first numbers."""
        self._total = drawn.x[drawn.index][..., 0].sum()

    def operation(self, x: Tensor) -> Tensor:
        """Return the row, with the total at its last place."""
        mixed = x.clone()
        mixed[..., -1] += self._total
        return mixed


class _ThroughGraphs(RowsAlone):
    """Takes every row through the graph by itself, behind an operation."""

    kind: ClassVar[type[_Sums]]

    def sums_of(self, model: Model) -> GraphSums:
        """Return the sums of the operation's rows. Raises NotAlone for what is no graph."""
        if not isinstance(model, GraphModel):
            raise NotAlone(f"{model.name} is no graph")
        return self.kind(model)


class KeepsState(_ThroughGraphs):
    """Has an operation that counts the rows before."""

    kind = _Counting


class DrawsNumbers(_ThroughGraphs):
    """Has an operation that draws, as dropout with a seed for each step."""

    kind = _Drawing


class LooksAtTheBatch(_ThroughGraphs):
    """Has an operation that adds what all drawn rows have together, as attention over them does."""

    kind = _Mixing
