"""The evaluations of a vertical run: when they are due, on which records, and their result."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.datasets import Dataset


class EvaluationRounds:
    """The evaluations of one run: one at a time, on records that are not trained on.

    next: k of the next one. rows: of the one under way, None where there is none. waiting: numbers
    of the requests that it waits for. final: whether it is the last one; over: whether the last one
    has been taken. latest: the latest one: k, θ_0, and the embeddings with their labels.
    """

    def __init__(self, rows: Tensor, every: int, samples: int, seed: int) -> None:
        """rows: of all records that may be evaluated. every: iterations between two evaluations.

        All evaluations but the last take `samples` of the rows, drawn with `seed`.
        """
        self._all = rows
        self._samples = samples
        self._seed = seed
        self.next = self._every = every
        self.rows: Tensor | None = None
        self.waiting: set[int] = set()
        self.final = self.over = False
        self.latest: tuple[int, Tensor, Dataset] | None = None

    def due(self, version: int, *, trained: bool) -> bool:
        """Check whether an evaluation is to begin at k = `version`: the last when `trained`."""
        return not self.waiting and not self.over and (trained or version >= self.next)

    def begin(self, version: int, *, trained: bool) -> Tensor:
        """Begin the evaluation at k = `version`, and return its rows."""
        self.next = version - version % self._every + self._every
        self.final = trained
        rows = self._all
        if not self.final:
            random = torch.Generator().manual_seed(self._seed)
            rows = rows[torch.randperm(len(rows), generator=random)[: self._samples]]
        self.rows = rows
        return rows

    def answered(self) -> Tensor | None:
        """End the evaluation under way where all have answered, and return its rows; else None."""
        if self.waiting:
            return None
        rows = self.rows
        self.rows = None
        return rows

    def take(self, version: int, params: Tensor, test_set: Dataset) -> None:
        """Keep the inputs of the evaluation that has been answered."""
        self.latest = (version, params, test_set)
        self.over = self.final
