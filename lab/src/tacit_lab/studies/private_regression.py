"""A private softmax regression of one trusted party that has all rows, as a comparison.

    C     every row's gradient is clipped to this length; r: the median length of a public row
    T     steps, each on all n rows: noisy gradient descent without sampling
    z     noise multiplier; z = √T/μ, with the μ of Gaussian DP that (ε, δ) pays for, is exact
    λ     the largest mean square of public rows along any direction; the loss bends by λ/2 at most

Its settings are the same for all tables. C is r, T is 100, and the rate is 2/λ, one over what the
loss bends by. The mean of the last half's models counts. Noise is from a seed: no release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from tacit_services.project.row_sizes import row_sizes
from torch import Tensor

from tacit.datasets import Dataset
from tacit.privacy.accounting import gdp


@dataclass(frozen=True, slots=True)
class Descent:
    """Settings: T, C over r, and the rate times λ."""

    steps: int = 100
    clip: float = 1.0
    rate: float = 2.0


USUAL = Descent()
GRID = [
    USUAL,
    Descent(steps=25),
    Descent(rate=0.5),
    Descent(rate=4.0),
    Descent(clip=0.7),
    Descent(clip=1.5),
    Descent(clip=1.5, rate=4.0),
]


class PrivateRegression:
    """The regression on `train` at (ε, δ), with constants of the `public` rows."""

    def __init__(self, train: Dataset, public: Dataset, delta: float) -> None:
        sizes = row_sizes([public.x.numpy()])
        self._x = _with_one(train.x)
        self._lengths = self._x.norm(dim=1)
        self._classes = train.classes
        self._answers = torch.nn.functional.one_hot(train.y, train.classes).float()
        self._sizes = sizes
        self._delta = delta

    def fitted(self, epsilon: float, settings: Descent, seed: int) -> Tensor:
        """Return the weights (classes, width + 1), a bias last."""
        chance = torch.Generator().manual_seed(seed)
        clip = settings.clip * self._sizes.length
        z = math.sqrt(settings.steps) / gdp.mu_within(epsilon, self._delta)
        rate = settings.rate / self._sizes.mean_square
        weights = torch.zeros(self._classes, self._x.shape[1])
        mean = torch.zeros_like(weights)
        for step in range(settings.steps):
            noise = z * clip * torch.randn(weights.shape, generator=chance)
            weights = weights - rate * (self._clipped_sum(weights, clip) + noise) / len(self._x)
            if step >= settings.steps // 2:
                mean += weights / (settings.steps - settings.steps // 2)
        return mean

    def _clipped_sum(self, weights: Tensor, clip: float) -> Tensor:
        """Return the sum of the rows' gradients, each at most `clip` long."""
        lacking = torch.softmax(self._x @ weights.T, 1) - self._answers
        lengths = lacking.norm(dim=1) * self._lengths
        kept = (clip / lengths.clamp(min=clip)).unsqueeze(1)
        return torch.mm((lacking * kept).T, self._x)


def probabilities(weights: Tensor, rows: Dataset) -> Tensor:
    """Return (n, classes)."""
    return torch.softmax(_with_one(rows.x) @ weights.T, 1)


def _with_one(x: Tensor) -> Tensor:
    return torch.cat((x, x.new_ones(len(x), 1)), 1)
