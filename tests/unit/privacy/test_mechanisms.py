"""Mechanisms: what they refuse, and the grid; their distributions are in test_mechanisms_statistics.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from tacit.privacy.noise.grid import GRID_BITS, grid_step, noise_units
from tacit.privacy.noise.mechanisms import (
    _cumulative,
    discrete_gaussian,
    discrete_normal,
    gaussian,
    knorm,
    paper_noise,
    standard_normal,
)
from tacit.privacy.noise.randomness import Random


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test on the compiled way and on its definition."""
    if request.param == "plain":
        monkeypatch.setattr("tacit.privacy.noise.mechanisms.library", lambda: None)


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
    first, second = (
        gaussian(torch.zeros(1000), 1.0, random),
        gaussian(torch.zeros(1000), 1.0, random),
    )
    assert int((first == second).sum()) < 10  # on a grid of 2^12 steps, neighbours meet by chance


@pytest.mark.parametrize("count", [0, 1, 3])
def test_any_number_of_normals_can_be_drawn(count: int) -> None:
    assert standard_normal(count, Random(1)).shape == (count,)


def test_paper_noise_has_the_asked_length_and_is_finite() -> None:
    noise = paper_noise(5, 2.0, Random(1))
    assert noise.shape == (5,)
    assert bool(torch.isfinite(noise).all())


# -- the discrete Gaussian -------------------------------------------------------------------------


class Scripted(Random):
    """Gives the words it is told to."""

    def __init__(self, words: list[int]) -> None:
        super().__init__(1)
        self.left = words

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next words of the script."""
        batch, self.left = self.left[:count], self.left[count:]
        return np.array(batch, dtype=np.uint64)


def probabilities(std: float) -> dict[int, float]:
    reach = math.ceil(13.5 * std)
    weights = {k: math.exp(-(k**2) / (2 * std**2)) for k in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def chi_square(draws: torch.Tensor, std: float) -> float:
    """Return the p-value of the draws against the exact probabilities.

    Values expected less than ten times are pooled.
    """
    expected = {k: p * len(draws) for k, p in probabilities(std).items()}
    common = [k for k, count in expected.items() if count >= 10]
    observed = [int((draws == k).sum()) for k in common]
    expected_counts = [expected[k] for k in common]
    observed.append(len(draws) - sum(observed))
    expected_counts.append(len(draws) - sum(expected_counts))
    return float(
        stats.chisquare(
            observed, np.array(expected_counts) * sum(observed) / sum(expected_counts)
        ).pvalue
    )


@pytest.mark.parametrize("std", [0.7, 2.0, 17.3])
def test_discrete_draws_have_the_exact_probabilities(std: float) -> None:
    for seed in range(3):
        assert chi_square(discrete_normal(50_000, std, Random(seed)), std) > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert chi_square(discrete_normal(50_000, wrong * std, Random(1)), std) < 1e-10


def test_rounding_a_normal_is_not_the_discrete_gaussian() -> None:
    rounded = torch.from_numpy(np.rint(np.random.default_rng(1).normal(0.0, 0.7, 50_000)))
    assert chi_square(rounded, 0.7) < 1e-10


@pytest.mark.parametrize("std", [0.7, 2.0, 409.6])
def test_the_table_is_the_distribution_function(std: float) -> None:
    high, exact = _cumulative(std)
    values = np.cumsum(list(probabilities(std).values()))[:-1]  # P[k <= -m], …
    middle = len(exact) // 2
    table = np.array([value / 2**128 for value in exact])
    assert table[middle - 3 : middle + 4] == pytest.approx(
        values[len(values) // 2 - 3 : len(values) // 2 + 4], abs=1e-13
    )
    assert exact == sorted(exact)
    assert [value >> 64 for value in exact] == high.tolist()


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
def test_a_word_on_a_boundary_is_decided_by_the_next_64_bits(place: float) -> None:
    high, exact = _cumulative(2.0)
    j = int(place * len(high))
    word, low_bits, zero = int(high[j]), exact[j] & (2**64 - 1), len(high) // 2
    below, at = (discrete_normal(1, 2.0, Scripted([word, low])) for low in (low_bits - 1, low_bits))
    assert (below.item(), at.item()) == (j - zero, j + 1 - zero)


def test_a_word_off_the_boundaries_takes_no_second_one() -> None:
    high, _ = _cumulative(2.0)
    random = Scripted([int(high[20]) - 1, int(high[20]) + 1, 5])
    drawn = discrete_normal(2, 2.0, random)
    assert drawn.tolist() == [20 - len(high) // 2, 21 - len(high) // 2]
    assert random.left == [5]


def test_only_the_words_on_a_boundary_draw_again() -> None:
    high, exact = _cumulative(2.0)
    first, second = int(high[20]), int(high[30])
    random = Scripted([first, int(high[25]) - 1, second, exact[20] & (2**64 - 1), 0])
    zero = len(high) // 2
    assert discrete_normal(3, 2.0, random).tolist() == [21 - zero, 25 - zero, 30 - zero]


def test_the_extreme_words_are_values_far_out_but_finite() -> None:
    reach = math.ceil(13.5 * 2.0)
    drawn = discrete_normal(2, 2.0, Scripted([0, 2**64 - 1, 0, 2**64 - 1]))  # both are boundaries
    assert -reach <= int(drawn[0]) < -17  # 2^-64 lies at 9.1σ
    assert 17 < int(drawn[1]) <= reach


@pytest.mark.parametrize("multiplier", [0.1, 1.0, 7.0])
def test_one_record_moves_at_most_4096_steps_and_the_noise_is_z_times_the_clip(
    multiplier: float,
) -> None:
    step = grid_step(3.0, multiplier)
    assert 3.0 / step <= 2**GRID_BITS * (1 + 1e-12)
    assert noise_units(multiplier) * step == pytest.approx(multiplier * 3.0)


def test_the_discrete_gaussian_moves_an_exact_sum() -> None:
    total = torch.tensor([2**40, -(2**40), 0])
    released = discrete_gaussian(total, 1.0, Random(1))
    assert released.dtype == torch.int64
    assert float((released - total).abs().max()) < 6 * 4096
    assert not torch.equal(released, total)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf])
def test_discrete_noise_without_a_positive_finite_multiplier_is_refused(multiplier: float) -> None:
    with pytest.raises(ValueError, match=r"^multiplier="):
        discrete_gaussian(torch.zeros(3, dtype=torch.int64), multiplier, Random(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_the_discrete_gaussian_adds_to_exact_integers_only(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="exact integers"):
        discrete_gaussian(torch.zeros(3, dtype=dtype), 1.0, Random(1))


# -- knorm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_knorm_without_a_positive_finite_scale_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match=r"^scale="):
        knorm(torch.zeros(3), scale, Random(1))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_knorm_refuses_a_sum_that_is_not_finite(bad: float) -> None:
    with pytest.raises(ValueError, match="non-finite"):
        knorm(torch.tensor([0.0, bad]), 1.0, Random(1))


@pytest.mark.parametrize("scale", [1e-6, 0.3, 700.0])
def test_knorm_lies_on_a_grid_that_depends_on_the_scale_alone(scale: float) -> None:
    grid = 2.0 ** (math.floor(math.log2(scale)) - GRID_BITS)
    for size in (0.0, 0.1234567, 1000.0):
        steps = knorm(torch.full((500,), size * scale), scale, Random(1)) / grid
        assert torch.equal(steps, torch.round(steps))


def test_each_normal_is_the_sum_of_draws_from_four_pairs_of_uniforms() -> None:
    """Take a pair's two draws away by a radius of nearly zero.

    They are from different normals, and none loses two.
    """
    for count in (1, 2, 5):
        pairs = 2 * max(2, count)
        plain = [round(0.3 * 2**52) << 12] * (2 * pairs)
        usual, losses = standard_normal(count, Scripted(plain)), []
        for pair in range(pairs):
            without = [*plain]
            without[pair] = 2**64 - 1  # its uniform is 1 - 2^-53, whose logarithm is as small
            normals = standard_normal(count, Scripted(without))
            losses.append((normals - usual).abs() > 1e-7)
        assert (torch.stack(losses).sum(0) == 4).all()


@pytest.mark.parametrize("count", [1, 2**15, 2**15 + 1, 2**17])
def test_words_are_of_the_one_kind_that_kernels_are_compiled_for(count: int) -> None:
    """Another kind is compiled anew, which takes seconds where the first push is due."""
    words = Random(1).words(count)
    assert words.dtype == np.uint64
    assert words.shape == (count,)
    assert (words.flags.writeable, words.flags.c_contiguous) == (False, True)
