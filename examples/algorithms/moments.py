"""A closed-form head from private second moments: a statistic as a gradient.

The loss is linear in the parameters, so its gradient is a statistic of the row, whatever the
parameters are. Here it is minus (u uᵀ, u e_yᵀ), with u the row divided by its length. Each edge
releases the mean of its rows' statistics once, and the server solves for the head of least squares.
Paper: Wang, "Revisiting differentially private linear regression" (arXiv:1803.02596), with one λ.

Here A is the mean of u uᵀ, B of u e_yᵀ, and the head W = (A + λ·1)^-1 B.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from tacit.algorithms import (
    AlgorithmServer,
    AlgorithmSettings,
    Field,
    Positive,
    ServerAlgorithm,
    Update,
)

NUMBERS, CLASSES = 64, 10


class Moments(nn.Module):
    """Scores of classes; their gradients are the moments of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Parameter(torch.zeros(NUMBERS, NUMBERS))
        self.cross = nn.Parameter(torch.zeros(NUMBERS, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (b, 10) of rows (b, 1, 8, 8)."""
        x = x.flatten(1)
        u = x / (x * x).sum(1, keepdim=True).clamp(min=1e-6).sqrt()
        return ((u @ self.second) * u).sum(1, keepdim=True) + u @ self.cross


def picked(output: Tensor, y: Tensor) -> Tensor:
    """Return minus the score of a row's class."""
    return -output.gather(0, y.clamp(0, CLASSES - 1).view(1)).sum()


class RidgeSettings(AlgorithmSettings):
    """The keys of [algorithm]."""

    searched: ClassVar = {"ridge": (0.001, 1.0)}

    ridge: Positive = Field(0.02, description="λ; larger for more noise")


class RidgeServer(AlgorithmServer[RidgeSettings]):
    """Adds up the moments of all edges, and solves for the head anew."""

    saved = ("total",)

    def begin(self) -> None:
        """Begin without a moment."""
        self.total = torch.zeros_like(self.params)

    def step(self, update: Update, tau: int) -> None:
        """W ← (A + λ·1)^-1 B, of the moments up to now; what is no moment is 0."""
        self.total = self.total - update.vector
        mean = self.total / (self.version + 1)
        second = mean[: NUMBERS**2].view(NUMBERS, NUMBERS)
        values, basis = torch.linalg.eigh((second + second.T) / 2)
        cross = mean[NUMBERS**2 :].view(NUMBERS, CLASSES)
        inverse = basis / (values.clamp(min=0) + self.settings.ridge) @ basis.T
        self.move(torch.cat([torch.zeros(NUMBERS**2), (inverse @ cross).flatten()]))


class Ridge(ServerAlgorithm):
    """A head of least squares over edges that release a statistic each."""

    settings = RidgeSettings
    role = RidgeServer
