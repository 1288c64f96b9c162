"""Statistics of the audit: bounds with a stated false-alarm rate, and findings.

A bound is never an estimate: with probability 1 - SHARE it is below the truth. One run of the audit
makes fewer than DECISIONS decisions about honest mechanisms, so all of them together raise a false
alarm at most once in 1/ALPHA runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

ALPHA = 1e-3  # false alarms of one whole run
DECISIONS = 320  # the most in one run: Clopper-Pearson bounds, and tests that say yes or no
SHARE = ALPHA / DECISIONS

ScoreValues = NDArray[np.float64]
ScoreCounts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one test of one target.

    claim, measured: in units of `quantity`. alarm: the test says that the claim is broken. skipped:
    why it was not run.
    """

    test: str
    target: str
    quantity: str
    claim: float
    measured: float
    alarm: bool
    honest: bool = True
    skipped: str = ""

    @property
    def good(self) -> bool:
        """Whether there is no alarm for an honest target, and one for a mutant."""
        return bool(self.skipped) or self.alarm != self.honest

    @property
    def verdict(self) -> str:
        """The finding in one or two words."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        if self.honest:
            if self.alarm:
                return "LEAKS"
            return "passes"
        if self.alarm:
            return "caught"
        return "MISSED"


# -- A: two samples --------------------------------------------------------------------------------


def at_least(hits: ScoreCounts, count: int) -> ScoreValues:
    """Return the proportions below which a true one lies with probability at most SHARE.

    They are Clopper-Pearson bounds.
    """
    proportions: ScoreValues = np.nan_to_num(stats.beta.ppf(SHARE, hits, count - hits + 1), nan=0.0)
    return proportions


def at_most(hits: ScoreCounts, count: int) -> ScoreValues:
    """Return the proportions above which a true one lies with probability at most SHARE.

    They are Clopper-Pearson bounds.
    """
    proportions: ScoreValues = np.nan_to_num(
        stats.beta.ppf(1 - SHARE, hits + 1, count - hits), nan=1.0
    )
    return proportions


def bounds(
    inside: ScoreValues, outside: ScoreValues, thresholds: ScoreValues, delta: float
) -> tuple[ScoreValues, ScoreValues]:
    """Return (μ, ε) that each test `value > threshold` proves.

    They are from Clopper-Pearson bounds on its rates. Φ⁻¹(TPR) - Φ⁻¹(FPR) and ln((TPR - δ)/FPR).
    """
    hits = at_least((inside[:, None] > thresholds).sum(0), len(inside))
    alarms = at_most((outside[:, None] > thresholds).sum(0), len(outside))
    mu = stats.norm.ppf(hits) - stats.norm.ppf(alarms)
    epsilon = np.log(np.maximum(hits - delta, 1e-300) / alarms)
    return np.maximum(mu, 0.0), np.maximum(epsilon, 0.0)


def proven(inside: ScoreValues, outside: ScoreValues, delta: float) -> tuple[float, float]:
    """Return (μ, ε) by which `inside` lies above `outside`.

    Thresholds are chosen on the first quarters of the samples, bounds are taken from the rest.
    """
    tried_on = min(len(inside), len(outside)) // 4
    pooled = np.concatenate((inside[:tried_on], outside[:tried_on]))
    thresholds = np.quantile(pooled, np.linspace(0.005, 0.995, 199))
    tried = bounds(inside[:tried_on], outside[:tried_on], thresholds, delta)
    mu, epsilon = (
        float(
            bounds(
                inside[tried_on:], outside[tried_on:], thresholds[[int(np.argmax(values))]], delta
            )[kind][0]
        )
        for kind, values in enumerate(tried)
    )
    return mu, epsilon


# -- B: one sample of noise ------------------------------------------------------------------------


def uneven(noise: Tensor, std: float, kurtosis: float = 3.0) -> tuple[float, list[int]]:
    """Return the std / `std` that is farthest from 1, and the coordinates of another std.

    noise: (n, d) without signal. Chi-square at SHARE / d; for a kurtosis other than 3, with as many
    degrees of freedom as give a sum of squares its variance.
    """
    count, dims = noise.shape
    ratio = noise.square().mean(dim=0).numpy() / std**2  # (d,)
    degrees = 2 * count / (kurtosis - 1)
    low, high = (
        float(stats.chi2.ppf(p, degrees)) / degrees
        for p in (SHARE / 2 / dims, 1 - SHARE / 2 / dims)
    )
    with np.errstate(divide="ignore"):
        worst = int(np.argmax(np.abs(np.log(ratio))))
    return math.sqrt(ratio[worst]), [
        int(column) for column in np.flatnonzero((ratio < low) | (ratio > high))
    ]


def tails(noise: Tensor) -> tuple[float, float]:
    """Return (p-value, its limit SHARE) of: `noise` is standard normal, by its tails.

    It counts how many lie beyond 1, 2, 3 and 3.5 standard deviations: noise that is cut off has
    none there.
    """
    sizes = noise.abs().flatten().numpy()
    beyond = [
        (int((sizes > reach).sum()), 2 * float(stats.norm.sf(reach)))
        for reach in (1.0, 2.0, 3.0, 3.5)
    ]
    values = [_binomial(np.asarray([hits]), sizes.size, chance) for hits, chance in beyond]
    return min(1.0, len(values) * min(values)), SHARE


def related(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Return the largest |correlation| of two coordinates, and its limit at SHARE.

    One is of `first`, the other of `second`. first, second: (n, d) without signal, row by row what
    should be independent.
    """
    count, dims = first.shape
    scaled, other_scaled = (
        sample / sample.norm(dim=0).clamp_min(1e-300) for sample in (first, second)
    )
    largest = float((scaled.T @ other_scaled).abs().max())
    return largest, float(stats.norm.isf(SHARE / (2 * dims**2))) / math.sqrt(count)


# -- C: who was in the batch -----------------------------------------------------------------------


def sampler_p_value(table: ScoreCounts, rate: float) -> float:
    """Return the p-value of Poisson sampling: each row in each batch at `rate`, independently.

    table: (batches, rows).
    """
    tests = (_inclusion, _size, _pairs, _next_call)
    return min(1.0, len(tests) * min(test(table, rate) for test in tests))


def _binomial(hits: ScoreCounts, count: int, p: float) -> float:
    """Return the smallest two-sided p-value of many binomial counts, times their number."""
    tails = np.minimum(stats.binom.cdf(hits, count, p), stats.binom.sf(hits - 1, count, p))
    return float(min(1.0, 2 * hits.size * tails.min()))


def _chi_square(statistic: float, degrees: float) -> float:
    return float(2 * min(stats.chi2.sf(statistic, degrees), stats.chi2.cdf(statistic, degrees)))


def _inclusion(table: ScoreCounts, rate: float) -> float:
    """Return the p-value of: every row is in a batch with probability q.

    No row is in too often, and not all are too evenly (epochs).
    """
    count, rows = table.shape
    z = (table.sum(0) - count * rate) / math.sqrt(count * rate * (1 - rate))
    return 2 * min(_binomial(table.sum(0), count, rate), _chi_square(float((z**2).sum()), rows))


def _size(table: ScoreCounts, rate: float) -> float:
    """Return the p-value of: the size of a batch has variance nq(1-q)."""
    count, rows = table.shape
    spread = rows * rate * (1 - rate)
    degrees = 2 * count / (2 + (1 - 6 * rate * (1 - rate)) / spread)  # a binomial's kurtosis
    return _chi_square(
        degrees * float(np.mean((table.sum(1) - rows * rate) ** 2)) / spread, degrees
    )


def _pairs(table: ScoreCounts, rate: float) -> float:
    """Return the p-value of: two rows are together with probability q².

    No pair is too often, and not all too rarely (fixed sizes).
    """
    count, rows = table.shape
    single = _binomial((table.T @ table)[np.triu_indices(rows, 1)], count, rate**2)
    sizes = np.arange(rows + 1)
    couples = sizes * (sizes - 1.0)
    weights = stats.binom.pmf(sizes, rows, rate)
    mean = float(couples @ weights)
    spread = math.sqrt(float((couples - mean) ** 2 @ weights) / count)
    drawn = table.sum(1)
    return 2 * min(
        single, float(2 * stats.norm.sf(abs(float((drawn * (drawn - 1)).mean()) - mean) / spread))
    )


def _next_call(table: ScoreCounts, rate: float) -> float:
    """Return the p-value of: a row is in two consecutive batches with probability q².

    Only every second pair of batches counts, so that pairs are independent.
    """
    count, rows = table.shape
    twice = (table[0 : count - 1 : 2] * table[1:count:2]).sum()
    return _binomial(np.asarray([twice]), rows * (count // 2), rate**2)


# -- D: one run ------------------------------------------------------------------------------------


def one_run_p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the probability that (ε, δ)-DP allows for `right` or more of `guesses` right.

    Steinke et al., "Privacy auditing with one (1) training run" (arXiv:2305.08846), Theorem 5.2.
    Each of `canaries` records is in or out by a fair coin. Then it is
    P[W ≥ v] + 2mδ·max_i P[v > W ≥ v - i]/i with W ~ Bin(r, e^ε/(1+e^ε)).
    """
    accuracy = 1 / (1 + math.exp(-epsilon))
    # P[W ≥ v - i] for i = 0 … v.
    tails = stats.binom.sf(np.arange(right, -1, -1) - 1, guesses, accuracy)
    if right:
        gain = float(((tails[1:] - tails[0]) / np.arange(1, right + 1)).max())
    else:
        gain = 0.0
    return float(min(1.0, tails[0] + 2 * canaries * delta * gain))


def one_run_epsilon(right: int, guesses: int, canaries: int, delta: float) -> float:
    """Return the largest ε that the guesses refute at SHARE; 0.0 if none."""
    if one_run_p_value(right, guesses, canaries, 0.0, delta) >= SHARE:
        return 0.0
    low = 0.0
    high = 30.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        refuted = one_run_p_value(right, guesses, canaries, middle, delta) < SHARE
        low, high = (middle, high) if refuted else (low, middle)
    return low
