"""Mechanisms: what they refuse, and the grid; their distributions are in tests/statistical."""

from __future__ import annotations

import math

import pytest
import torch

from tacit.privacy.mechanisms import GRID_BITS, gaussian, paper_noise, standard_normal
from tacit.privacy.sampling import Random


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf])
def test_noise_without_a_positive_finite_scale_is_refused(std: float) -> None:
    with pytest.raises(ValueError, match=r"^std="):
        gaussian(torch.zeros(3), std, Random(1))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_sum_that_is_not_finite_never_reaches_the_noise(bad: float) -> None:
    with pytest.raises(ValueError, match="non-finite"):
        gaussian(torch.tensor([0.0, bad]), 1.0, Random(1))


@pytest.mark.parametrize("std", [1e-6, 0.3, 1.0, 1.999, 700.0])
def test_a_release_lies_on_a_power_of_two_grid_that_depends_on_the_noise_alone(std: float) -> None:
    grid = 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)
    for size in (0.0, 0.1234567, 1000.0):
        steps = gaussian(torch.full((500,), size * std), std, Random(1)) / grid
        assert torch.equal(steps, torch.round(steps))
        assert bool((steps % 2 == 1).any())  # no coarser one
    assert grid <= std / 2**GRID_BITS


def test_the_sum_is_moved_not_replaced() -> None:
    total = torch.linspace(-5, 5, 1000)
    released = gaussian(total, 1e-3, Random(1))
    assert released.dtype == torch.float64
    assert float((released - total).abs().max()) < 0.01
    assert torch.equal(total, torch.linspace(-5, 5, 1000))


def test_two_calls_never_share_noise() -> None:
    random = Random(1)
    first, second = gaussian(torch.zeros(1000), 1.0, random), gaussian(torch.zeros(1000), 1.0, random)
    assert int((first == second).sum()) < 10  # on a grid of 2^12 steps, neighbours meet by chance


@pytest.mark.parametrize("count", [0, 1, 3])
def test_any_number_of_normals_can_be_drawn(count: int) -> None:
    assert standard_normal(count, Random(1)).shape == (count,)


def test_paper_noise_has_the_asked_length_and_is_finite() -> None:
    noise = paper_noise(5, 2.0, Random(1))
    assert noise.shape == (5,)
    assert bool(torch.isfinite(noise).all())
