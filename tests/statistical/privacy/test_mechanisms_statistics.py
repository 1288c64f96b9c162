"""The noise against its distribution: right at 1x the claimed scale, caught at 2/3x and at 3/2x.

Seeds are fixed. Each test rejects right noise with probability about ALPHA over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.privacy.noise.grid import noise_units
from tacit.privacy.noise.mechanisms import (
    discrete_gaussian,
    discrete_normal,
    gaussian,
    knorm,
    paper_noise,
    standard_normal,
)
from tacit.privacy.noise.randomness import Random

ALPHA = 1e-4
STD = 3.7
DRAWS = 20_000
Test = Callable[[torch.Tensor], float]  # a p-value


def noise(scale: float, seed: int = 1) -> torch.Tensor:
    return gaussian(torch.zeros(DRAWS), scale * STD, Random(seed))


def ks(sample: torch.Tensor) -> float:
    return float(stats.kstest(sample.numpy() / STD, "norm").pvalue)


def variance(sample: torch.Tensor) -> float:
    statistic = float((sample / STD).square().sum())
    return float(
        2 * min(stats.chi2.sf(statistic, len(sample)), stats.chi2.cdf(statistic, len(sample)))
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("test", [ks, variance])
def test_gaussian_noise_is_gaussian_of_the_claimed_scale(test: Test, seed: int) -> None:
    assert test(noise(1.0, seed)) > ALPHA


@pytest.mark.parametrize("scale", [2 / 3, 3 / 2, 0.9, 1.1])
@pytest.mark.parametrize("test", [ks, variance])
def test_noise_of_another_scale_is_caught(test: Test, scale: float) -> None:
    assert test(noise(scale)) < ALPHA


def test_the_tails_are_those_of_a_normal() -> None:
    sample = standard_normal(400_000, Random(1)).abs()
    for bound in (2.0, 3.0, 4.0):
        beyond = int((sample > bound).sum())
        assert stats.binomtest(beyond, len(sample), 2 * stats.norm.sf(bound)).pvalue > ALPHA


@pytest.mark.parametrize("on_grid", [False, True])
def test_noise_is_not_cut_at_five_standard_deviations(on_grid: bool) -> None:
    random, draws, beyond = Random(1), 2_000_000, 0
    for _ in range(12):
        if on_grid:
            steps = discrete_normal(draws, 4096.0, random)
            beyond += int((steps.abs() > 5 * 4096).sum())
        else:
            beyond += int((standard_normal(draws, random).abs() > 5.0).sum())
    # 13.8 are expected, and none with a probability of 1e-6.
    assert stats.binomtest(beyond, 12 * draws, 2 * stats.norm.sf(5.0)).pvalue > ALPHA
    assert stats.binomtest(0, 12 * draws, 2 * stats.norm.sf(5.0)).pvalue < ALPHA


def uneven(vectors: torch.Tensor) -> list[int]:
    """Return the coordinates (columns) whose noise is not N(0, STD²), each at ALPHA / d."""
    draws, size = vectors.shape
    statistic = (vectors / STD).square().sum(0).numpy()
    p = 2 * np.minimum(stats.chi2.sf(statistic, draws), stats.chi2.cdf(statistic, draws))
    return [int(column) for column in np.flatnonzero(p < ALPHA / size)]


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_every_coordinate_is_noised_the_last_too(size: int) -> None:
    random = Random(size)
    vectors = torch.stack([gaussian(torch.zeros(size), STD, random) for _ in range(400)])
    assert uneven(vectors) == []
    vectors[:, -1] = 0.0
    assert uneven(vectors) == [size - 1]


def test_coordinates_and_calls_are_uncorrelated() -> None:
    random, count = Random(1), 2000
    calls = torch.stack([gaussian(torch.zeros(10), STD, random) for _ in range(count)]) / STD
    limit = stats.norm.isf(ALPHA / 200) / math.sqrt(count)
    between_coordinates = (calls.T @ calls / count).fill_diagonal_(0)
    between_calls = calls[:-1].T @ calls[1:] / count
    assert float(between_coordinates.abs().max()) < limit
    assert float(between_calls.abs().max()) < limit
    copied = torch.cat((calls[:, :9], calls[:, :1]), dim=1)  # noise used twice is caught
    assert float((copied.T @ copied / count).fill_diagonal_(0).abs().max()) > limit


def test_the_noise_does_not_depend_on_the_sum() -> None:
    total = torch.full((DRAWS,), 1234.5)
    assert ks(gaussian(total, STD, Random(2)) - total) > ALPHA


# -- discrete_gaussian -----------------------------------------------------------------------------


def discrete(scale: float, seed: int = 1) -> torch.Tensor:
    """Return noise in units in which multiplier 1/2 has standard deviation STD."""
    steps = discrete_gaussian(torch.zeros(DRAWS, dtype=torch.int64), 0.5 * scale, Random(seed))
    return steps.to(torch.float64) * (STD / noise_units(0.5))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("test", [ks, variance])
def test_discrete_noise_is_gaussian_of_the_claimed_scale(test: Test, seed: int) -> None:
    assert test(discrete(1.0, seed)) > ALPHA


@pytest.mark.parametrize("scale", [2 / 3, 3 / 2, 0.9, 1.1])
@pytest.mark.parametrize("test", [ks, variance])
def test_discrete_noise_of_another_scale_is_caught(test: Test, scale: float) -> None:
    assert test(discrete(scale)) < ALPHA


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_every_coordinate_has_discrete_noise_the_last_too(size: int) -> None:
    random, total = Random(size), torch.zeros(size, dtype=torch.int64)
    vectors = torch.stack([discrete_gaussian(total, 0.5, random) for _ in range(400)]) * (
        STD / noise_units(0.5)
    )
    assert uneven(vectors) == []
    vectors[:, -1] = 0.0
    assert uneven(vectors) == [size - 1]


# -- knorm: radius Gamma(d), direction uniform, variance (d+1)·scale² a coordinate -----------------

DIMS = 5


def radial(scale: float, seed: int = 1, dims: int = DIMS) -> torch.Tensor:
    random = Random(seed)
    return torch.stack([knorm(torch.zeros(dims), scale * STD, random) for _ in range(4000)])


def radius(sample: torch.Tensor) -> float:
    return float(stats.kstest(sample.norm(dim=1).numpy(), "gamma", args=(DIMS, 0, STD)).pvalue)


def coordinates(sample: torch.Tensor) -> float:
    """Return the p-value of each coordinate's variance, the least of all.

    The degrees of freedom are those of its kurtosis, 3(d+3)/(d+1).
    """
    degrees = 2 * len(sample) / (3 * (DIMS + 3) / (DIMS + 1) - 1)
    statistic = degrees * sample.square().mean(dim=0).numpy() / ((DIMS + 1) * STD**2)
    p = 2 * DIMS * np.minimum(stats.chi2.sf(statistic, degrees), stats.chi2.cdf(statistic, degrees))
    return float(p.min())


def likelihood_ratio(sample: torch.Tensor) -> float:
    """Return the p-value of the likelihood ratio on a line, with sensitivity S = STD at ε = 1.

    Beyond S the ratio of the two outputs is e, everywhere.
    """
    line = sample.flatten()
    return float(stats.binomtest(int((line > STD).sum()), len(line), 0.5 * math.exp(-1.0)).pvalue)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("test", "dims"), [(radius, DIMS), (coordinates, DIMS), (likelihood_ratio, 1)]
)
def test_knorm_is_the_claimed_distribution(test: Test, dims: int, seed: int) -> None:
    assert test(radial(1.0, seed, dims)) > ALPHA


@pytest.mark.parametrize("scale", [2 / 3, 3 / 2])
@pytest.mark.parametrize(
    ("test", "dims"), [(radius, DIMS), (coordinates, DIMS), (likelihood_ratio, 1)]
)
def test_knorm_of_another_scale_is_caught(test: Test, dims: int, scale: float) -> None:
    assert test(radial(scale, 1, dims)) < ALPHA


def test_the_direction_of_knorm_is_uniform_and_independent_of_its_radius() -> None:
    noise = radial(1.0, 1, 3)
    radii = noise.norm(dim=1, keepdim=True)
    for column in (
        noise / radii
    ).T.numpy():  # on a sphere in three dimensions each coordinate is uniform
        assert stats.kstest(column, "uniform", args=(-1, 2)).pvalue > ALPHA
        assert abs(stats.spearmanr(column, radii.numpy().ravel()).statistic) < 0.07


def test_the_radius_tells_knorm_from_the_papers_density() -> None:
    random = Random(1)
    printed = torch.stack([paper_noise(DIMS, STD, random) for _ in range(4000)])
    assert radius(printed) < ALPHA


# -- the paper's eq. (6): right as printed, which is not private -----------------------------------


def paper(scale: float) -> torch.Tensor:
    random = Random(1)
    return torch.stack([paper_noise(3, scale, random) for _ in range(4000)])


def test_the_norm_of_paper_noise_is_exponential() -> None:
    for scale, right in ((STD, True), (2 / 3 * STD, False), (3 / 2 * STD, False)):
        norms = torch.linalg.vector_norm(paper(scale), dim=1).numpy()
        assert (stats.kstest(norms, "expon", args=(0, STD)).pvalue > ALPHA) == right


def test_the_direction_of_paper_noise_is_uniform_and_independent_of_its_norm() -> None:
    noise = paper(STD)
    norms = torch.linalg.vector_norm(noise, dim=1, keepdim=True)
    for column in (
        noise / norms
    ).T.numpy():  # on a sphere in three dimensions each coordinate is uniform
        assert stats.kstest(column, "uniform", args=(-1, 2)).pvalue > ALPHA
        assert abs(stats.spearmanr(column, norms.numpy().ravel()).statistic) < 0.07
