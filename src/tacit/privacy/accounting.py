"""What a history of releases costs: ε by PLD (tight) and by RDP, calibration, and the certified push count.

Every history is a list of (mechanism, q, z) entries with counts: Poisson-subsampled releases at sampling rate q and
noise multiplier z, under add/remove adjacency. dp-accounting does the arithmetic; this file fixes how it is asked.

`discrete_gaussian` by RDP at integer orders is exactly `gaussian`: for an integer shift D,
E_Q[(P/Q)^j] = exp(j(j-1)||D||²/2S²) holds on the lattice as it does on the line (privacy.md §8.3). By PLD it is the
continuous Gaussian of variance S² - 1/12, rounded: rounding is post-processing, and the two integer distributions
differ by a Kullback-Leibler divergence below 1.5e-6/S⁸ a coordinate (tests), which is paid for in delta.
`knorm` at z is pure DP: one release is (1/z, 0), and ln(1 + q(e^{1/z} - 1)) after Poisson sampling; PLD then composes
it exactly as Kairouz, Oh and Viswanath (2015) do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import dp_accounting as dpa
import numpy as np
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from numpy.typing import NDArray

from tacit.errors import PrivacyError
from tacit.privacy.mechanisms import noise_units
from tacit.privacy.sampling import TAIL

_PLD_INTERVAL = 1e-3  # PLD discretisation; pessimistic rounding, so ε is never understated
ORDERS = [
    *range(2, 65),
    80,
    96,
    128,
    192,
    256,
    512,
]  # integer orders: valid for the discrete Gaussian too
MULTIPLIER_STEP = (
    1e-3  # calibrated noise multipliers lie on this grid, so that runs share ledger rows
)
_MIN_MULTIPLIER, _MAX_MULTIPLIER = (
    1e-3,
    1e6,
)  # below this z nothing is claimed (ε > 10^5); above it, no better ε is claimed
_PLD_MAX_EPSILON = 64.0  # where RDP's ε is above this, or there are more releases than _PLD_MAX_RELEASES, PLD costs gigabytes or
_PLD_MAX_RELEASES = 2**18  # minutes, and RDP's ε, just as valid, is the answer
_MIN_RATE = (
    1e-6  # a smaller q is accounted as this one: more ε, and dp-accounting stays within its numbers
)
_PLD_MAX_ROWS = 16  # rows above which RDP's ε is the answer; a ledger has one for every (mechanism, q, z) of its life
_MAX_ROWS = 64  # rows above which each is accounted as the worst of its mechanism
_LATTICE_KL = 1.5e-6  # KL(N_Z(0, S²), rounded N(0, S² - 1/12)) <= _LATTICE_KL/S⁸ for S >= 1
_MAX_DIMS = 2**30  # no model on the wire is larger (wire.MAX_MESSAGE)


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
    rows = _at_most_max_rows(merged(history))
    bound = epsilon_rdp(rows, delta)
    if (
        not rows
        or len(rows) > _PLD_MAX_ROWS
        or bound > _PLD_MAX_EPSILON
        or sum(row.count for row in rows) > _PLD_MAX_RELEASES
    ):
        return bound
    cut = _cut_probability(rows) + _off_lattice(rows)
    return min(bound, _with_tail(lambda usable: _pld_epsilon(rows, usable), cut, delta))


def epsilon_rdp(history: Iterable[Spend], delta: float) -> float:
    """ε at `delta` by Rényi DP at integer orders: looser than PLD, and an independent check of it."""
    return RunningRdp(_at_most_max_rows(merged(history))).epsilon(delta)


def _at_most_max_rows(rows: History) -> History:
    """`rows`, or an upper bound on what they cost: nobody may keep an accountant busy with a thousand rows."""
    if len(rows) <= _MAX_ROWS:
        return rows
    worst: dict[str, tuple[float, float, int]] = {}
    for row in rows:
        q, z, count = worst.get(row.mechanism, (0.0, math.inf, 0))
        worst[row.mechanism] = (
            max(q, row.sampling_rate),
            min(z, row.noise_multiplier),
            count + row.count,
        )
    return tuple(
        Spend(q, z, count, mechanism) for mechanism, (q, z, count) in sorted(worst.items())
    )


class RunningRdp:
    """ε by RDP of a history that grows: one addition of a cached vector a release, however many rows there are."""

    def __init__(self, history: Iterable[Spend] = ()) -> None:
        self._total: NDArray[np.float64] = np.zeros(len(ORDERS))
        self._cut, self._pushes = 0.0, 0
        for row in history:
            self.add(row)

    def add(self, spend: Spend) -> None:
        """Count `spend`; a new (mechanism, q, z) costs 20 ms once, a known one a microsecond."""
        if spend.count:
            self._total = self._total + float(spend.count) * rdp_vector(spend)
            self._cut += _cut_probability((spend,))
            self._pushes += spend.count

    def epsilon(self, delta: float) -> float:
        """ε at `delta` of everything added (0.0 of nothing, inf after a release without noise); about 0.3 ms."""
        if not self._pushes:
            return 0.0
        if math.isinf(self._total[0]):
            return math.inf
        return _with_tail(
            lambda usable: float(rdp.compute_epsilon(ORDERS, self._total, usable)[0]),
            self._cut,
            delta,
        )


def rdp_vector(spend: Spend) -> NDArray[np.float64]:
    """Rényi divergence of *one* release of `spend` at each of ORDERS (inf without a valid mechanism)."""
    if spend.noise_multiplier < _MIN_MULTIPLIER:
        return np.full(len(ORDERS), math.inf)
    return _one_rdp(spend.sampling_rate, spend.noise_multiplier, spend.mechanism)


def epsilon_disjoint(edges: Iterable[Iterable[Spend]], delta: float) -> float:
    """ε at `delta` of a whole run whose edges hold *different* people's records: the largest edge's (0.0 of none).

    Parallel composition (McSherry 2009, theorem 4): one person's record is at one edge, and what the other edges send
    depends on it only through models already released. Each edge may have its own mechanism, q, z and ε_k; and the
    maximum is a guarantee for every person, that of edge k for the people at edge k.
    """
    return max((epsilon_pld(history, delta) for history in edges), default=0.0)


def epsilon_shared(parties: Iterable[Iterable[Spend]], delta: float) -> float:
    """ε at `delta` for a person whose data lie at *every* one of `parties`: their histories composed.

    Sequential composition: vertical federated learning, where each party holds other columns of the same people, or
    a patient of two hospitals. Tighter than adding up the parties' ε at delta/K, and never less than the largest.
    """
    return epsilon_pld([row for history in parties for row in history], delta)


def delta_set_aside(history: Iterable[Spend], epsilon: float) -> float:
    """What of δ pays, at `epsilon`, for draws that padding cuts and for the integers' distance from a Gaussian."""
    rows = merged(history)
    return (1 + math.exp(min(epsilon, 700.0))) * (_cut_probability(rows) + _off_lattice(rows))


@lru_cache(maxsize=256)
def calibrate(
    epsilon: float, delta: float, pushes: int, sampling_rate: float, mechanism: str = "gaussian"
) -> float:
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
            raise PrivacyError(
                f"epsilon={epsilon}: no noise reaches it for {pushes} pushes at q={sampling_rate}"
            )
    low = high // 2 if high > 256 else 99  # below z = 0.1 nothing is worth calling private
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high * MULTIPLIER_STEP


@lru_cache(maxsize=256)
def certified_pushes(
    epsilon: float,
    delta: float,
    sampling_rate: float,
    noise_multiplier: float,
    history: History = (),
    mechanism: str = "gaussian",
) -> int:
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


def _with_tail(epsilon_at: Callable[[float], float], distance: float, delta: float) -> float:
    # What was accounted is within total variation `distance` of what was released; that adds at most
    # (1 + e^ε)·distance to δ, and is set aside. Where it does not fit in half of δ (ε > 14 or so), nothing is claimed.
    bound = epsilon_at(delta / 2)
    aside = (1 + math.exp(min(bound, 700.0))) * distance
    return epsilon_at(delta - aside) if aside <= delta / 2 else math.inf


def _cut_probability(rows: History) -> float:
    """Probability that the padded batch ever cuts a draw: at most TAIL a push."""
    return TAIL * sum(row.count for row in rows)


def _off_lattice(rows: History) -> float:
    """Total variation between the integers that were released and the rounded Gaussians that PLD accounts.

    By Pinsker and the chain rule, adaptive releases included: sqrt(KL/2) with KL summed over coordinates and pushes.
    """
    discrete = (row for row in rows if row.mechanism == "discrete_gaussian")
    divergence = sum(
        row.count * _MAX_DIMS * _LATTICE_KL / noise_units(row.noise_multiplier) ** 8
        for row in discrete
    )
    return math.sqrt(divergence / 2)


@lru_cache(maxsize=512)
def _pld_epsilon(rows: History, delta: float) -> float:
    return float(_composed(rows).get_epsilon_for_delta(delta))


@lru_cache(maxsize=16)
def _composed(rows: History) -> pld.PrivacyLossDistribution:
    total, interval = None, _interval(rows)
    for row in rows:
        one = _one_pld(row.sampling_rate, row.noise_multiplier, row.mechanism, interval)
        part = one.self_compose(row.count)
        total = part if total is None else total.compose(part)
    return total


def _interval(rows: History) -> float:
    """The grid of the losses. Pure mechanisms lose ±ε exactly: alone on a grid of ε, nothing is rounded at all."""
    pure = [
        _pure_epsilon(row.sampling_rate, row.noise_multiplier)
        for row in rows
        if row.mechanism == "knorm"
    ]
    if len(pure) < len(rows):
        return _PLD_INTERVAL
    return pure[0] if len(pure) == 1 else max(min(pure) / 16, max(pure) / 256)


@lru_cache(maxsize=64)
def _one_pld(
    sampling_rate: float, noise_multiplier: float, mechanism: str, interval: float
) -> pld.PrivacyLossDistribution:
    z, sampling_rate = min(noise_multiplier, _MAX_MULTIPLIER), max(sampling_rate, _MIN_RATE)
    if (
        mechanism == "knorm"
    ):  # rounded up to the grid *before* it is split into ±: rounding both would shift the mean
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
    """ε of a pure ε-DP release on a Poisson(q) sample, add/remove adjacency: ln(1 + q(e^ε - 1)).

    Exact for small ε (never rounded to "free"), without overflow for large.
    """
    if epsilon < 1:
        return math.log1p(sampling_rate * math.expm1(epsilon))
    return epsilon + math.log(sampling_rate + (1 - sampling_rate) * math.exp(-epsilon))


def _pure_epsilon(sampling_rate: float, noise_multiplier: float) -> float:
    return amplified(1 / min(noise_multiplier, _MAX_MULTIPLIER), max(sampling_rate, _MIN_RATE))


@lru_cache(maxsize=1024)
def _one_rdp(sampling_rate: float, noise_multiplier: float, mechanism: str) -> NDArray[np.float64]:
    z, sampling_rate = min(noise_multiplier, _MAX_MULTIPLIER), max(sampling_rate, _MIN_RATE)
    if (
        mechanism == "knorm"
    ):  # ε-DP is (α, min(ε, αε²/2))-RDP at every order (Bun and Steinke 2016, Prop. 3.3)
        pure = _pure_epsilon(sampling_rate, z)
        return np.minimum(pure, np.asarray(ORDERS) * pure**2 / 2)
    accountant = rdp.RdpAccountant(ORDERS, dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dpa.PoissonSampledDpEvent(sampling_rate, dpa.GaussianDpEvent(z)), 1)
    return np.asarray(accountant.rdp, dtype=np.float64)
