"""What a history of releases costs: ε by PLD (tight) and by RDP, calibration, and the certified push count.

Every history is a list of (mechanism, q, z) entries with counts: Poisson-subsampled releases at sampling rate q and
noise multiplier z, under add/remove adjacency. dp-accounting does the arithmetic; this file fixes how it is asked.

`discrete_gaussian` is accounted as `gaussian`. By RDP at integer orders that is exact: for an integer shift D,
E_Q[(P/Q)^j] = exp(j(j-1)||D||²/2S²) holds on the lattice as it does on the line (privacy.md §8.3). PLD is computed
for one dimension, where the two agree to six digits at the S used here; RDP is the figure to sign.
`knorm` at z is pure DP: one release is (1/z, 0), and ln(1 + q(e^{1/z} - 1)) after Poisson sampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import dp_accounting as dpa
from dp_accounting import rdp
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld

from tacit.errors import PrivacyError
from tacit.privacy.sampling import TAIL

_INTERVAL = 1e-3  # PLD discretisation; pessimistic rounding, so ε is never understated
_ORDERS = [*range(2, 65), 80, 96, 128, 192, 256, 512]  # integer orders: valid for the discrete Gaussian too
MULTIPLIER_STEP = 1e-3  # calibrated noise multipliers lie on this grid, so that runs share ledger rows
_LEAST, _MOST = 1e-3, 1e6  # below this z nothing is claimed (ε > 10^5); above it, no better ε is claimed
_WORTH = 64.0  # where RDP's ε is above this, or there are more releases than _COUNTED, PLD costs gigabytes or
_COUNTED = 2**18  # minutes, and RDP's ε, just as valid, is the answer


@dataclass(frozen=True, slots=True)
class Spend:
    """`count` releases at `sampling_rate` q and `noise_multiplier` z (noise std over sensitivity).

    z = 0 means a release without a valid mechanism (no noise, or the paper's): ε is infinite from then on.
    For `knorm`, z is the scale of its radius over the sensitivity: 1/ε of one release.
    """

    sampling_rate: float
    noise_multiplier: float
    count: int
    mechanism: str = "gaussian"


History = tuple[Spend, ...]


def merged(history: Iterable[Spend]) -> History:
    """The same history with equal rows added up and empty ones dropped, in a fixed order."""
    counts: dict[tuple[float, float, str], int] = {}
    for row in history:
        key = (row.sampling_rate, row.noise_multiplier, row.mechanism)
        counts[key] = counts.get(key, 0) + row.count
    return tuple(Spend(q, z, n, mechanism) for (q, z, mechanism), n in sorted(counts.items()) if n)


def epsilon_pld(history: Iterable[Spend], delta: float) -> float:
    """ε at `delta` of the whole history, by privacy loss distributions (0.0 for an empty one).

    Conservative to about 0.002 at 3,000 releases. Valid for schedules of (q, z) fixed in advance, whoever chooses
    when and with which model a release happens. Where RDP's bound is the smaller (beyond 10^5 releases the
    discretisation adds up) or PLD costs too much, it is RDP's: any history has an answer, at once.
    """
    rows = merged(history)
    bound = epsilon_rdp(rows, delta)
    if not rows or bound > _WORTH or sum(row.count for row in rows) > _COUNTED:
        return bound
    return min(bound, _with_tail(lambda usable: _pld_epsilon(rows, usable), rows, delta))


def epsilon_rdp(history: Iterable[Spend], delta: float) -> float:
    """ε at `delta` by Rényi DP at integer orders: looser than PLD, and an independent check of it."""
    rows = merged(history)
    if not rows:
        return 0.0
    if any(row.noise_multiplier < _LEAST for row in rows):
        return math.inf
    total = [sum(row.count * r for row, r in zip(rows, column, strict=True)) for column in _rdp_columns(rows)]

    def at(usable: float) -> float:
        return float(rdp.compute_epsilon(_ORDERS, total, usable)[0])

    return _with_tail(at, rows, delta)


def calibrate(epsilon: float, delta: float, pushes: int, sampling_rate: float, mechanism: str = "gaussian") -> float:
    """The smallest noise multiplier (on a grid of 0.001) whose `pushes` releases stay within (ε, δ) by PLD.

    Raises PrivacyError when no multiplier up to 2^14 suffices.
    """

    def enough(step: int) -> bool:
        spend = Spend(sampling_rate, step * MULTIPLIER_STEP, pushes, mechanism)
        return epsilon_pld([spend], delta) <= epsilon

    high = 256
    while not enough(high):
        high *= 2
        if high > 2**24:
            raise PrivacyError(f"epsilon={epsilon}: no noise reaches it for {pushes} pushes at q={sampling_rate}")
    low = high // 2 if high > 256 else 99  # below z = 0.1 nothing is worth calling private
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high * MULTIPLIER_STEP


def certified_pushes(
    epsilon: float, delta: float, sampling_rate: float, noise_multiplier: float, history: History = (),
    mechanism: str = "gaussian",
) -> int:  # fmt: skip
    """T_max: how many further releases at (q, z) keep `history` plus them within (ε, δ) by PLD; 0 if none.

    The edge enforces this by counting: the cap is fixed before the run, so stopping early costs nothing.
    """

    def within(count: int) -> bool:
        further = Spend(sampling_rate, noise_multiplier, count, mechanism)
        return epsilon_pld([*history, further], delta) <= epsilon

    if noise_multiplier == 0 or not within(1):
        return 0
    high = 2
    while within(high) and high < 2**30:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def _with_tail(epsilon_at: Callable[[float], float], rows: History, delta: float) -> float:
    # The padded batch cuts a draw with probability <= TAIL per push, which adds at most (1 + e^ε)·TAIL to δ each
    # time; that much of δ is set aside. Where it does not fit in half of δ (ε > 14 or so), nothing is claimed.
    bound = epsilon_at(delta / 2)
    aside = (1 + math.exp(min(bound, 700.0))) * TAIL * sum(row.count for row in rows)
    return epsilon_at(delta - aside) if aside <= delta / 2 else math.inf


@lru_cache(maxsize=512)
def _pld_epsilon(rows: History, delta: float) -> float:
    return float(_composed(rows).get_epsilon_for_delta(delta))


@lru_cache(maxsize=16)
def _composed(rows: History) -> pld.PrivacyLossDistribution:
    total = None
    for row in rows:
        part = _one_pld(row.sampling_rate, row.noise_multiplier, row.mechanism).self_compose(row.count)
        total = part if total is None else total.compose(part)
    return total


@lru_cache(maxsize=64)
def _one_pld(sampling_rate: float, noise_multiplier: float, mechanism: str) -> pld.PrivacyLossDistribution:
    if mechanism == "knorm":
        pure = common.DifferentialPrivacyParameters(amplified(1 / noise_multiplier, sampling_rate), 0.0)
        return pld.from_privacy_parameters(pure, value_discretization_interval=_INTERVAL)
    return pld.from_gaussian_mechanism(
        min(noise_multiplier, _MOST), sampling_prob=sampling_rate, value_discretization_interval=_INTERVAL
    )


def amplified(epsilon: float, sampling_rate: float) -> float:
    """ε of a pure ε-DP release on a Poisson(q) sample, add/remove adjacency: ln(1 + q(e^ε - 1)) (no overflow)."""
    return max(0.0, epsilon + math.log(sampling_rate + (1 - sampling_rate) * math.exp(-epsilon)))


def _pure_rdp(epsilon: float) -> tuple[float, ...]:
    # ε-DP is (α, min(ε, αε²/2))-RDP at every order (Bun and Steinke 2016, Prop. 3.3).
    return tuple(min(epsilon, alpha * epsilon**2 / 2) for alpha in _ORDERS)


@lru_cache(maxsize=64)
def _one_rdp(sampling_rate: float, noise_multiplier: float, mechanism: str) -> tuple[float, ...]:
    if mechanism == "knorm":
        return _pure_rdp(amplified(1 / noise_multiplier, sampling_rate))
    accountant = rdp.RdpAccountant(_ORDERS, dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dpa.PoissonSampledDpEvent(sampling_rate, dpa.GaussianDpEvent(min(noise_multiplier, _MOST))), 1)
    return tuple(float(value) for value in accountant.rdp)


def _rdp_columns(rows: History) -> Iterable[tuple[float, ...]]:
    return zip(*(_one_rdp(row.sampling_rate, row.noise_multiplier, row.mechanism) for row in rows), strict=True)
