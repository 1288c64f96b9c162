"""One dense layer whose output is a number: linear regression."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tacit.models.zoo.layered import Layered


@dataclass(frozen=True)
class LinearModel(Layered):
    """A weighted sum of a row's numbers, and the square of its distance to the target."""

    @property
    def labels_below(self) -> int:
        """0: the target is no label."""
        return 0

    @property
    def squared_error(self) -> bool:
        """Whether the loss is the square of the output's distance to a number: it is."""
        return True

    def data_loss(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return (score - y)² (...) of scores (..., 1) and numbers y (...)."""
        return (scores.squeeze(-1) - y) ** 2

    def guesses(self, scores: torch.Tensor) -> None:
        """Return None: there are no classes."""

    def random_batch(
        self, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `count` random rows, of no data, and numbers in [0, 1)."""
        x = torch.rand(count, *self.shape, generator=generator)
        return x, torch.rand(count, generator=generator)


def linear(shape: tuple[int, ...], regularization: float = 0.0) -> LinearModel:
    """Return a linear model of one number, for rows of `shape`."""
    return LinearModel("linear", shape, 1, regularization)
