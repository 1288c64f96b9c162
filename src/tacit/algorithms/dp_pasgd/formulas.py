"""The formulas that the design of DP-PASGD rests on: cost, privacy, convergence.

Paper: arXiv:2003.12705, sections 5 to 7, whose equation numbers are given. Two of them are wrong as
printed (docs/algorithms.md has figures). `paper_scale` (25) takes the root of (23) that spends 5 to
77 times ε_th. `paper_bound` (12) divides by K what no step of its proof divides. `scale`,
`last_iterate` and `average_iterate` replace them.

K counts the local steps of a device, τ (`tau`) those between two averages, and R = K/τ (`rounds`)
the averages. z is the noise multiplier σ_m X_m / G, and B the variance floor (13).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.algorithms.dp_pasgd.problem import DesignProblem

Numbers = NDArray[np.float64]


def cost(p: DesignProblem, rounds: Numbers, tau: Numbers) -> Numbers:
    """Return what one device spends by (8): C = c1·K/τ + c2·K, with K = Rτ."""
    return p.c1 * rounds + p.c2 * rounds * tau


def epsilon_zcdp(K: float, z: float, delta: float) -> float:
    """Return ε of K steps by (9), each on a batch of which one record may be replaced.

    The sensitivity is 2G/X_m, and nothing is amplified. ρ = K (2G/X_m)² / (2σ_m²) = 2K/z² by Lemmas
    1 and 2, ε = ρ + 2√(ρ ln(1/δ)) by Lemma 3.
    """
    rho = 2 * K / z**2
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def scale(epsilon: float, delta: float) -> float:
    """Return Z of z² = 2K/Z: the ρ that (9) lets K steps spend.

    √ρ = √(ln(1/δ) + ε) - √ln(1/δ), computed without cancellation.
    """
    log = math.log(1 / delta)
    return epsilon**2 / (epsilon + 2 * log + 2 * math.sqrt(log**2 + epsilon * log))


def paper_scale(epsilon: float, delta: float) -> float:
    """Return Z by (25) as printed, which is the other root of (23).

    It is a ρ of -√ln(1/δ) - √(ln(1/δ) + ε), so σ is 5 to 39 times too small.
    """
    log = math.log(1 / delta)
    return epsilon + 2 * log + 2 * math.sqrt(log**2 + epsilon * log)


# -- convergence -----------------------------------------------------------------------------------


def variance_floor(p: DesignProblem, tau: Numbers, z2: Numbers) -> Numbers:
    """Return B of (13): where the error ends.

    Needs (21e), and that E g is the *global* gradient: devices with data alike.
    """
    M = p.devices
    L = p.smoothness
    eta = p.lr
    lam = p.strong_convexity
    sigma2 = z2 * p.lipschitz**2 * p.inverse_square  # (1/M) Σ σ_m²
    return (eta * L + eta**2 * L**2 * (tau - 1) * M) / (2 * lam * M) * (p.xi2 + p.dim * sigma2)


def paper_bound(p: DesignProblem, K: Numbers, B: Numbers) -> Numbers:
    """Return F of (21a), by (12) as printed; false.

    Without any noise it falls below the true gap (docs/privacy.md, section 5).
    """
    return (1 - p.lr * p.strong_convexity) ** K * (p.gap - B) / K + B


def last_iterate(p: DesignProblem, K: Numbers, B: Numbers) -> Numbers:
    """Return (1 - ηλ)^K (α - B) + B, for the last iterate.

    It is (17), unrolled step by step instead of averaged. Exact for τ = 1. For τ > 1 the drift
    cancels against the gradients only up to the weights (1 - ηλ)^i of the steps since the last
    average. So it is an approximation, and the objective of the planners `corrected` and `poisson`.
    """
    contraction = np.exp(K * math.log1p(-p.lr * p.strong_convexity))
    return contraction * p.gap + (1 - contraction) * B


def average_iterate(p: DesignProblem, K: Numbers, B: Numbers) -> Numbers:
    """Return α(1 - ηλ)(1 - (1 - ηλ)^K)/(ηλK) + B, a provable bound.

    It is for the mean of all K iterates' gaps, so for the best one too.
    """
    step = p.lr * p.strong_convexity
    return p.gap * (1 - step) * -np.expm1(K * math.log1p(-step)) / (step * K) + B


def longest_period(p: DesignProblem) -> float:
    """Return the largest τ within (21e), ηL + η²L²τ(τ - 1) <= 1; a real number."""
    rate = p.lr * p.smoothness
    return (1 + math.sqrt(1 + 4 * (1 - rate) / rate**2)) / 2
