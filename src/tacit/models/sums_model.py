"""Sums of rows in the place of a model: what questions are answered from.

The loss is minus the product of the parameters and the row's vector. So a row's gradient is minus
its vector at all parameters. Clipped, summed and noised as any gradient, it is a private sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from tacit.models.model_contract import LayerValues, Layout, Model
from tacit.questions.row_parts import Entries
from tacit.questions.sheet import QuestionSheet


@dataclass(frozen=True)
class SumsModel(Model):
    """One number for each number of a row's vector (W,). Its parameters are the sums up to now.

    sheet: what a row (*shape), which is packed, has as its vector; None: the row is the vector.
    """

    sheet: QuestionSheet | None = None

    @property
    def layout(self) -> Layout:
        """The sums, in the order of a row's vector."""
        return (("sums.weight", (1, *self.shape) if self.sheet is None else (1, self.sheet.width)),)

    @property
    def variant(self) -> str:
        """Nothing else."""
        return "sums"

    @property
    def support(self) -> int:
        """The most numbers of a row's vector that are not 0."""
        return self.size if self.sheet is None else self.sheet.support

    @property
    def most_entries(self) -> int:
        """The most numbers of a unit's vector that are not 0."""
        return self.size if self.sheet is None else self.sheet.most_entries

    def init(self, seed: int) -> torch.Tensor:
        """Return zeros."""
        return torch.zeros(self.size)

    def entries(self, x: torch.Tensor) -> Entries:
        """Return the vectors of rows (n, *shape)."""
        rows = x.numpy()
        if self.sheet is None:
            return Entries(np.broadcast_to(np.arange(self.size), rows.shape), rows)
        return self.sheet.entries(rows)

    def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[LayerValues]:
        """Return the one layer at work, which has no bias."""
        vectors = torch.from_numpy(self.entries(x.view(-1, *self.shape)).dense(self.size))
        vectors = vectors.view(*x.shape[:-1], self.size)
        output = functional.linear(vectors, params.view(1, -1))
        return [LayerValues(vectors, output, bias=False)]

    def data_loss(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return minus the output (...) of scores (..., 1); y is not read."""
        return -scores.squeeze(-1)

    def guesses(self, scores: torch.Tensor) -> None:
        """Return None: there are no classes."""

    def random_batch(
        self, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `count` random rows, of no data, and zeros as their y."""
        most = 1 if self.sheet is None else 9  # some cells and categories, in a packed row
        return most * torch.rand(count, *self.shape, generator=generator), torch.zeros(count)
