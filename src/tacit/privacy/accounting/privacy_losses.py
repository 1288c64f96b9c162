"""The privacy loss of one release and of their composition, which dp-accounting computes.

By privacy loss distributions (PLD) and by Rényi DP (RDP), for a Poisson-subsampled
release of a mechanism at q and z, add/remove adjacency. `accounting` explains the mechanisms.

dp-accounting is imported where it is used: that takes a second, and most processes that read a run
file compute no ε.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.accounting.history import History
from tacit.privacy.noise.grid import noise_units

if TYPE_CHECKING:
    from dp_accounting.pld import privacy_loss_distribution as pld

_PLD_INTERVAL = 1e-3  # grid of the privacy losses, rounded up: ε is never understated
_MAX_MULTIPLIER = 1e6  # a larger z is accounted as this one: no better ε is claimed
_MIN_RATE = 1e-6  # a smaller q is accounted as this one, so that dp-accounting stays accurate
# Rényi orders: integers, which are valid for the discrete Gaussian too.
ORDERS = [*range(2, 65), 80, 96, 128, 192, 256, 512]


@lru_cache(maxsize=512)
def pld_epsilon(rows: History, delta: float) -> float:
    """Return ε at `delta` of `rows` by PLD, as the accountant has it: no draw cut, no lattice."""
    return float(_composed(rows).get_epsilon_for_delta(delta))


@lru_cache(maxsize=16)
def _composed(rows: History) -> pld.PrivacyLossDistribution:
    total = None
    interval = _interval(rows)
    for row in rows:
        single = _one_pld(row.sampling_rate, row.noise_multiplier, row.mechanism, interval)
        part = single.self_compose(row.count)
        if total is None:
            total = part
        else:
            total = total.compose(part)
    return total


def _interval(rows: History) -> float:
    """Return the grid on which PLD rounds privacy losses.

    A pure mechanism loses exactly ±ε: if it is alone, on a grid of ε, nothing is rounded at all.
    """
    pure = [
        _pure_epsilon(row.sampling_rate, row.noise_multiplier)
        for row in rows
        if row.mechanism == "knorm"
    ]
    if len(pure) < len(rows):
        return _PLD_INTERVAL
    if len(pure) == 1:
        return pure[0]
    return max(min(pure) / 16, max(pure) / 256)


@lru_cache(maxsize=64)
def _one_pld(
    sampling_rate: float, noise_multiplier: float, mechanism: str, interval: float
) -> pld.PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution as pld

    z = min(noise_multiplier, _MAX_MULTIPLIER)
    sampling_rate = max(sampling_rate, _MIN_RATE)
    # ε is rounded up to the grid *before* it is split into ±ε: rounding both would shift the mean.
    if mechanism == "knorm":
        steps = math.ceil(_pure_epsilon(sampling_rate, z) / interval)
        up = 1 / (1 + math.exp(-steps * interval))
        return pld.PrivacyLossDistribution.create_from_rounded_probability(
            {steps: up, -steps: 1 - up}, 0.0, interval
        )
    if mechanism == "discrete_gaussian":
        z *= math.sqrt(1 - 1 / (12 * noise_units(z) ** 2))
    return pld.from_gaussian_mechanism(
        z, sampling_prob=sampling_rate, value_discretization_interval=interval
    )


def amplified(epsilon: float, sampling_rate: float) -> float:
    """Return ε of a pure ε-DP release on a Poisson(q) sample: ln(1 + q(e^ε - 1)).

    Adjacency is add/remove. Exact for small ε, which is never rounded to 0, and without overflow
    for large ε.
    """
    if epsilon < 1:
        return math.log1p(sampling_rate * math.expm1(epsilon))
    return epsilon + math.log(sampling_rate + (1 - sampling_rate) * math.exp(-epsilon))


def _pure_epsilon(sampling_rate: float, noise_multiplier: float) -> float:
    return amplified(1 / min(noise_multiplier, _MAX_MULTIPLIER), max(sampling_rate, _MIN_RATE))


@lru_cache(maxsize=1024)
def one_rdp(sampling_rate: float, noise_multiplier: float, mechanism: str) -> NDArray[np.float64]:
    """Return the Rényi divergence of one release at each of ORDERS; noise_multiplier: above 0."""
    import dp_accounting as dpa
    from dp_accounting import rdp

    z = min(noise_multiplier, _MAX_MULTIPLIER)
    sampling_rate = max(sampling_rate, _MIN_RATE)
    # ε-DP is (α, min(ε, αε²/2))-RDP at every order (Bun and Steinke, arXiv:1605.02065, prop. 3.3).
    if mechanism == "knorm":
        pure = _pure_epsilon(sampling_rate, z)
        return np.minimum(pure, np.asarray(ORDERS) * pure**2 / 2)
    accountant = rdp.RdpAccountant(ORDERS, dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dpa.PoissonSampledDpEvent(sampling_rate, dpa.GaussianDpEvent(z)), 1)
    return np.asarray(accountant.rdp, dtype=np.float64)
