"""The regression that edges are compared with: it learns, and its noise is what the budget pays for."""

from __future__ import annotations

import math

import pytest
import torch
from tacit_lab.studies.private_regression import USUAL, Descent, PrivateRegression, probabilities
from tacit_services.project.row_sizes import row_sizes

from tacit.datasets import Dataset
from tacit.models.calibration import calibration
from tacit.privacy.accounting import gdp

DELTA = 1e-5


def two_classes(count: int, seed: int) -> Dataset:
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, generator=chance)
    sure = torch.sigmoid(2 * x[:, 0] - x[:, 1])
    y = (torch.rand(count, generator=chance) < sure).long()
    return Dataset(x, y, 2, "drawn")


def test_it_learns_with_many_rows_and_is_drowned_at_a_tiny_budget() -> None:
    test = two_classes(2000, seed=2)
    regression = PrivateRegression(two_classes(4000, seed=1), two_classes(300, seed=3), DELTA)

    def log_loss(epsilon: float) -> float:
        weights = regression.fitted(epsilon, USUAL, seed=1)
        return calibration(probabilities(weights, test), test.y).log_loss

    assert log_loss(4.0) < 0.5 < math.log(2) < log_loss(0.002)


@pytest.mark.parametrize("times", [1.0, 2 / 3, 3 / 2])
def test_one_step_has_the_noise_that_gaussian_privacy_asks_for(times: float) -> None:
    """Rows of zeros and as many of each class: all but the bias is noise alone, 4,000 numbers.

    The estimate of a deviation is off by 1.1 % of it; 5 % are 4.5 of these.
    """
    train = Dataset(torch.zeros(100, 2000), torch.arange(100) % 2, 2, "zeros")
    sizes = row_sizes([train.x.numpy()])
    regression = PrivateRegression(train, train, DELTA)
    moved = regression.fitted(1.0, Descent(steps=1), seed=7)[:, :-1]
    unit = USUAL.rate / sizes.mean_square * USUAL.clip * sizes.length / len(train)
    z = float(moved.std()) / unit * times
    due = 1 / gdp.mu_within(1.0, DELTA)
    assert (abs(z / due - 1) < 0.05) == (times == 1.0)
