"""Gaussian differential privacy: the cost of embeddings, in μ.

A Gaussian release with noise multiplier z (noise std over sensitivity) is exactly (1/z)-GDP.
Releases compose exactly: μ² = Σ μ_i², over epochs, and over parties that hold other features of the
same people. (Dong, Roth and Su, arXiv:1905.02383, corollary 3.3.) A history is the ledger's own
(accounting.History), so `accounting.epsilon_pld` is an independent check of every number here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tacit.privacy.accounting.epsilon import epsilon_pld
from tacit.privacy.accounting.history import Spend

_LARGE = 1e4  # for a larger μ, ε is reported as infinite


def mu(history: Iterable[Spend]) -> float:
    """Return μ of everything in `history`: sqrt(Σ n/z²); 0.0 of nothing.

    An upper bound where rows were subsampled: q < 1 only helps, and is left out. inf for a release
    without noise (z = 0), and for one that is not Gaussian.
    """
    rows = [row for row in history if row.count]
    if any(row.mechanism != "gaussian" or row.noise_multiplier <= 0 for row in rows):
        return math.inf
    return math.sqrt(math.fsum(row.count / row.noise_multiplier**2 for row in rows))


def compose(parties: Iterable[float]) -> float:
    """Return μ of a person whose features lie at every party, from each party's own μ.

    μ² = Σ_m μ_m².
    """
    return math.sqrt(math.fsum(m * m for m in parties))


def delta(mu: float, epsilon: float) -> float:
    """Return δ(ε) of μ-GDP: Φ(-ε/μ + μ/2) - e^ε·Φ(-ε/μ - μ/2) (corollary 2.13).

    It is 0 for μ = 0, and 1 for μ = inf.
    """
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    from scipy.special import log_ndtr, ndtr

    return float(
        ndtr(mu / 2 - epsilon / mu)
        - math.exp(min(700.0, epsilon + log_ndtr(-mu / 2 - epsilon / mu)))
    )


def epsilon(mu: float, at_delta: float) -> float:
    """Return the least ε with δ(ε) <= `at_delta`; 0.0 for μ small enough, inf for μ above 10^4."""
    if mu > _LARGE:
        return math.inf
    if delta(mu, 0.0) <= at_delta:
        return 0.0
    high = 1.0
    while delta(mu, high) > at_delta:
        high *= 2
    return _root(lambda e: delta(mu, e) - at_delta, high, 1e-10)


def mu_within(epsilon: float, at_delta: float) -> float:
    """Return the largest μ that implies (ε, δ)-DP: what a budget pays for."""
    high = 1.0
    while delta(high, epsilon) <= at_delta:
        high *= 2
    return _root(lambda m: delta(m, epsilon) - at_delta, high, 1e-12) * (1 - 1e-9)


def _root(function: Callable[[float], float], high: float, tolerance: float) -> float:
    """Return where `function` is 0, between 0 and `high`."""
    from scipy.optimize import brentq  # a third of a second, which most processes need not wait

    return float(brentq(function, 0.0, high, xtol=tolerance))


def within(history: Iterable[Spend], epsilon: float, at_delta: float) -> bool:
    """Check whether `history` costs at most (ε, δ): in μ where all is Gaussian, else by PLD."""
    rows = tuple(history)
    if any(row.noise_multiplier <= 0 for row in rows if row.count):
        return False
    if math.isinf(mu(rows)):
        return epsilon_pld(rows, at_delta) <= epsilon
    return mu(rows) <= mu_within(epsilon, at_delta)
