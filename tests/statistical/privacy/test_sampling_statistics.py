"""Poisson sampling against its distribution, and against the samplers that are often taken for it.

Seeds are fixed. Each test rejects a right sampler with probability about ALPHA over seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import padded_size
from tacit.privacy.private_sum.sampling import poisson

ALPHA = 1e-4
ROWS, RATE, DRAWS = 100, 0.1, 3000
Table = NDArray[np.int64]  # (DRAWS, ROWS): how often a row is in a batch


def ours(seed: int) -> Table:
    random, size = Random(seed), padded_size(ROWS, RATE)
    table = np.zeros((DRAWS, ROWS), np.int64)
    for draw in table:
        batch = poisson(ROWS, RATE, size, random)
        draw[batch.index[batch.mask].numpy()] = 1
    return table


def shuffled(seed: int) -> Table:
    """Return epochs of a shuffled order in batches of fixed size, as data loaders draw them."""
    rng, size = np.random.default_rng(seed), round(ROWS * RATE)
    table = np.zeros((DRAWS, ROWS), np.int64)
    for epoch in range(0, DRAWS, ROWS // size):
        for step, batch in enumerate(rng.permutation(ROWS).reshape(-1, size)):
            table[epoch + step, batch] = 1
    return table


def fresh_without_replacement(seed: int) -> Table:
    rng, size = np.random.default_rng(seed), round(ROWS * RATE)
    table = np.zeros((DRAWS, ROWS), np.int64)
    for draw in table:
        draw[rng.choice(ROWS, size, replace=False)] = 1
    return table


def with_replacement(seed: int) -> Table:
    rng, size = np.random.default_rng(seed), round(ROWS * RATE)
    return np.stack(
        [np.bincount(rng.integers(0, ROWS, size), minlength=ROWS) for _ in range(DRAWS)]
    )


def never_empty_of_the_first(seed: int) -> Table:
    """Draw by Poisson, but let row 0 fill the smallest batches.

    One record is drawn more often than the accountant believes.
    """
    table = ours(seed)
    table[table.sum(1) <= 6, 0] = 1
    return table


def two_sided(statistic: float, degrees: int) -> float:
    return float(2 * min(stats.chi2.sf(statistic, degrees), stats.chi2.cdf(statistic, degrees)))


def inclusion(table: Table) -> float:
    """Return the p-value of: every row is in a batch with probability RATE."""
    z = (table.sum(0) - DRAWS * RATE) / np.sqrt(DRAWS * RATE * (1 - RATE))
    return float(
        min(two_sided(float((z**2).sum()), ROWS), 2 * ROWS * stats.norm.sf(np.abs(z).max()))
    )


def size_variance(table: Table) -> float:
    """Return the p-value of: the size of a batch has variance n·q·(1-q)."""
    return two_sided(float(DRAWS * table.sum(1).var() / (ROWS * RATE * (1 - RATE))), DRAWS - 1)


def pairs(table: Table) -> float:
    """Return the p-value of: two rows are together in a batch with probability q², of all pairs."""
    together = table.T @ table
    both = together[np.triu_indices(ROWS, 1)].astype(np.float64) / DRAWS
    # Under independence the mean over pairs has the variance of a U-statistic; its leading term is
    # enough here.
    spread = np.sqrt((4 * RATE**3 * (1 - RATE) / ROWS + 2 * RATE**4 / ROWS**2) / DRAWS)
    return float(2 * stats.norm.sf(abs(both.mean() - RATE**2) / spread))


def next_call(table: Table) -> float:
    """Return the p-value of: a row is in two consecutive batches with probability q²."""
    twice = int(np.minimum(table[:-1] * table[1:], 1).sum())
    return float(stats.binomtest(twice, (DRAWS - 1) * ROWS, RATE**2).pvalue)


TESTS: dict[str, Callable[[Table], float]] = {
    "inclusion": inclusion,
    "size": size_variance,
    "pairs": pairs,
    "next call": next_call,
}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_our_sampler_passes_every_test(seed: int) -> None:
    table = ours(seed)
    assert {name: p for name, test in TESTS.items() if (p := test(table)) < ALPHA} == {}


@pytest.mark.parametrize(
    ("sampler", "caught_by"),
    [
        (shuffled, {"inclusion", "size", "pairs", "next call"}),
        (fresh_without_replacement, {"size", "pairs"}),
        (with_replacement, {"size", "pairs"}),
        (never_empty_of_the_first, {"inclusion"}),
    ],
)
def test_samplers_that_are_not_poisson_are_caught(
    sampler: Callable[[int], Table], caught_by: set[str]
) -> None:
    table = sampler(1)
    failed = {name for name, test in TESTS.items() if test(table) < ALPHA}
    assert caught_by <= failed


@pytest.mark.parametrize("wrong", [0.9, 1.1])
def test_a_rate_ten_percent_off_is_caught(wrong: float) -> None:
    random, table = Random(1), np.zeros((DRAWS, ROWS), np.int64)
    for draw in table:
        batch = poisson(ROWS, RATE * wrong, ROWS, random)
        draw[batch.index[batch.mask].numpy()] = 1
    assert inclusion(table) < ALPHA
