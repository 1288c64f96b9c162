"""The cost of a history of releases: ε by PLD (tight) and by RDP, calibration, push counts.

A history is a list of rows (mechanism, q, z, count): Poisson-subsampled releases at sampling rate q
and noise multiplier z, under add/remove adjacency. dp-accounting does the arithmetic; this module
fixes how it is asked.

`discrete_gaussian`: by RDP at integer orders it is exactly `gaussian`. For an integer shift D the
identity E_Q[(P/Q)^j] = exp(j(j-1)||D||²/2S²) holds on the lattice as on the line. That is the
reason (docs/privacy.md, "Accounting"). By PLD it is the continuous Gaussian of variance S² - 1/12,
rounded to integers. Rounding is post-processing. The two integer distributions differ by a
Kullback-Leibler divergence below 1.5e-6/S⁸ a coordinate (tests), which is paid for in δ.

`knorm` at z is pure DP: one release is (1/z, 0)-DP, and ln(1 + q(e^{1/z} - 1)) after Poisson
sampling. PLD then composes it exactly as Kairouz, Oh and Viswanath do (arXiv:1311.0776).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.errors import PrivacyError
from tacit.privacy.accounting.history import History, Spend, by_side, merged, of_all_rows
from tacit.privacy.accounting.privacy_losses import ORDERS, one_rdp, pld_epsilon
from tacit.privacy.noise.grid import noise_units

# The probability, per push, that a Poisson batch has more rows than slots: paid for in δ.
TAIL = 1e-15
MULTIPLIER_STEP = 1e-3  # the grid of calibrated noise multipliers, so that runs share ledger rows
_MIN_MULTIPLIER = 1e-3  # for a smaller z nothing is claimed (ε > 10^5)

# Beyond any of these PLD takes gigabytes or minutes, and RDP's ε, just as valid, is the answer.
_PLD_MAX_EPSILON = 64.0  # by RDP
_PLD_MAX_RELEASES = 2**18
_PLD_MAX_ROWS = 16  # a ledger has a row for every (mechanism, q, z) of its life

_MAX_ROWS = 64  # in a longer history all rows of one mechanism are accounted as its worst
_MOST_STEPS = 2**24  # in units of MULTIPLIER_STEP: the largest z that is looked for
_LATTICE_KL = 1.5e-6  # KL(N_Z(0, S²), rounded N(0, S² - 1/12)) <= _LATTICE_KL/S⁸ for S >= 1
_MAX_DIMS = 2**30  # parameters: no message on the wire holds more


def epsilon_pld(history: Iterable[Spend], delta: float) -> float:
    """Return ε at `delta` of the whole history by privacy loss distributions; 0.0 for an empty one.

    Guarantee: an upper bound for any schedule of (q, z) that is fixed in advance, for every choice
    of when and with which model a release happens. It is conservative by about 0.002 at 3,000
    releases. If RDP's bound is smaller (beyond 10^5 releases the discretisation adds up), or if PLD
    would cost too much, it is RDP's. So every history has an answer at once. Of a ledger whose
    units are split it is the larger ε of the two sides.
    """
    return max(_epsilon_pld(_at_most_max_rows(rows), delta) for rows in by_side(history))


@lru_cache(maxsize=4096)
def _epsilon_pld(rows: History, delta: float) -> float:
    bound = epsilon_rdp(rows, delta)
    if (
        not rows
        or len(rows) > _PLD_MAX_ROWS
        or bound > _PLD_MAX_EPSILON
        or sum(row.count for row in rows) > _PLD_MAX_RELEASES
    ):
        return bound
    cut = _cut_probability(rows) + _off_lattice(rows)
    return min(bound, _with_tail(lambda usable: pld_epsilon(rows, usable), cut, delta))


def epsilon_rdp(history: Iterable[Spend], delta: float) -> float:
    """Return ε at `delta` by Rényi DP at integer orders.

    It is looser than PLD, and an independent check of it. Sides count as of `epsilon_pld`.
    """
    return max(_epsilon_rdp(_at_most_max_rows(rows), delta) for rows in by_side(history))


@lru_cache(maxsize=4096)
def _epsilon_rdp(rows: History, delta: float) -> float:
    return RunningRdp(rows).epsilon(delta)


def _at_most_max_rows(rows: History) -> History:
    """Return `rows`, or a history of at most one row a mechanism that costs at least as much.

    A ledger with a thousand different rows must not keep an accountant busy.
    """
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
    """ε by RDP of a growing history; a release costs one addition, however long the history is."""

    def __init__(self, history: Iterable[Spend] = ()) -> None:
        self._total: NDArray[np.float64] = np.zeros(len(ORDERS))
        self._cut = 0.0
        self._pushes = 0
        for row in history:
            self.add(row)

    def add(self, spend: Spend) -> None:
        """Count `spend`. A new (mechanism, q, z) takes 20 ms once, a known one a microsecond."""
        if spend.count:
            self._total = self._total + float(spend.count) * rdp_vector(spend)
            self._cut += _cut_probability((spend,))
            self._pushes += spend.count

    def epsilon(self, delta: float) -> float:
        """Return ε at `delta` of everything added.

        It is 0.0 of nothing, and inf after a release without noise. About 0.3 ms.
        """
        if not self._pushes:
            return 0.0
        if math.isinf(self._total[0]):
            return math.inf
        from dp_accounting import rdp  # it takes a second, as `privacy_losses` says

        return _with_tail(
            lambda usable: float(rdp.compute_epsilon(ORDERS, self._total, usable)[0]),
            self._cut,
            delta,
        )


def rdp_vector(spend: Spend) -> NDArray[np.float64]:
    """Return the Rényi divergence of *one* release at ORDERS; inf without a mechanism."""
    if spend.noise_multiplier < _MIN_MULTIPLIER:
        return np.full(len(ORDERS), math.inf)
    return one_rdp(spend.sampling_rate, spend.noise_multiplier, spend.mechanism)


def epsilon_disjoint(edges: Iterable[Iterable[Spend]], delta: float) -> float:
    """Return ε at `delta` of a run whose edges hold *different* people's records, 0.0 of no edges.

    It is the largest edge's ε, by parallel composition (McSherry, doi:10.1145/1559845.1559850,
    theorem 4). One person's record is at one edge, and the messages of the other edges depend on it
    only through models already released. Each edge may have its own mechanism, q, z and ε_k. The
    maximum is a guarantee for every person. The people at edge k have that of edge k.
    """
    return max((epsilon_pld(history, delta) for history in edges), default=0.0)


def epsilon_shared(parties: Iterable[Iterable[Spend]], delta: float) -> float:
    """Return ε at `delta` for a person with data at *every* one of `parties`, by composition.

    This is sequential composition. It is for vertical federated learning, where each party holds
    other columns of the same people. It is also for a patient of two hospitals, whose rows may be
    on another side at each. It is tighter than adding up the parties' ε at delta/K, and never less
    than the largest of them.
    """
    return epsilon_pld(of_all_rows(row for history in parties for row in history), delta)


def delta_set_aside(history: Iterable[Spend], epsilon: float) -> float:
    """Return the part of δ that pays, at `epsilon`, for what the accountant leaves out.

    Left out are draws that the padded batch cuts, and the distance of discrete noise from a
    Gaussian.
    """
    rows = merged(history)
    return (1 + math.exp(min(epsilon, 700.0))) * (_cut_probability(rows) + _off_lattice(rows))


@lru_cache(maxsize=256)
def calibrate(
    epsilon: float, delta: float, pushes: int, sampling_rate: float, mechanism: str = "gaussian"
) -> float:
    """Return the smallest noise multiplier z whose `pushes` releases cost at most (ε, δ) by PLD.

    z is on a grid of 0.001. Raises PrivacyError when no z up to 2^14 suffices.

    >>> z = calibrate(epsilon=2.0, delta=1e-5, pushes=100, sampling_rate=0.05)
    >>> z
    1.345
    >>> epsilon_pld([Spend(0.05, z, 100)], delta=1e-5) <= 2.0
    True
    >>> certified_pushes(2.0, 1e-5, 0.05, z)
    100
    """

    def cost(step: int) -> float:
        spend = Spend(sampling_rate, step * MULTIPLIER_STEP, pushes, mechanism)
        return epsilon_pld([spend], delta)

    # The answer is above `low` and at most `high`: z below 0.1 is not worth calling private.
    low = 99
    high = _MOST_STEPS + 1
    step = 1000
    tried: list[tuple[int, float]] = []
    while high - low > 1:
        tried.append((step, cost(step)))
        if tried[-1][1] <= epsilon:
            high = step
        else:
            low = step
        step = min(max(_aim(tried, epsilon, low, high), low + 1), high - 1)
    if high > _MOST_STEPS:
        raise PrivacyError(
            f"epsilon={epsilon}: no noise reaches it for {pushes} pushes at q={sampling_rate}"
        )
    return high * MULTIPLIER_STEP


def _aim(tried: list[tuple[int, float]], epsilon: float, low: int, high: int) -> int:
    """Return the next step to try, on the line through the last two, in logarithms.

    Every fourth halves. ε falls nearly as a power of z, so that a few tries are enough where
    halving takes fourteen.
    """
    points = [(math.log(step), math.log(cost)) for step, cost in tried[-2:] if 0 < cost < math.inf]
    if len(tried) % 4 == 0 or not points:
        return math.isqrt(low * high)
    (x, y), slope = points[-1], -1.0
    if len(points) == 2 and points[0][1] != y and points[0][0] != x:
        slope = min((y - points[0][1]) / (x - points[0][0]), -0.1)
    # The border itself is unknown by a last bit: it is found from both sides.
    return math.ceil(math.exp(min(x + (math.log(epsilon) - y) / slope, 20.0)))


@lru_cache(maxsize=256)
def certified_pushes(
    epsilon: float,
    delta: float,
    sampling_rate: float,
    noise_multiplier: float,
    history: History = (),
    mechanism: str = "gaussian",
) -> int:
    """Return T_max, the number of releases at (q, z) that fit within (ε, δ) after `history`.

    It is by PLD, and 0 if none fits. The edge enforces the budget by counting: the cap is fixed
    before the run, so stopping early costs nothing.
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
        if within(middle):
            low = middle
        else:
            high = middle
    return low


def _with_tail(epsilon_at: Callable[[float], float], distance: float, delta: float) -> float:
    """Return ε at `delta` of what was released, from `epsilon_at`: the ε of what was accounted.

    The two are within total variation `distance` of each other, which adds at most
    (1 + e^ε)·distance to δ. That is set aside. Where it takes more than half of δ (ε above 14 or
    so) nothing is claimed: the answer is inf.
    """
    bound = epsilon_at(delta / 2)
    aside = (1 + math.exp(min(bound, 700.0))) * distance
    if aside <= delta / 2:
        return epsilon_at(delta - aside)
    return math.inf


def _cut_probability(rows: History) -> float:
    """Return the probability that a padded batch ever cuts a draw: at most TAIL a push."""
    return TAIL * sum(row.count for row in rows)


def _off_lattice(rows: History) -> float:
    """Return the total variation of released integers from the Gaussians that PLD accounts.

    The Gaussians are rounded. By Pinsker's inequality and the chain rule, adaptive releases
    included: sqrt(KL/2), with KL summed over coordinates and pushes.
    """
    discrete = (row for row in rows if row.mechanism == "discrete_gaussian")
    divergence = sum(
        row.count * _MAX_DIMS * _LATTICE_KL / noise_units(row.noise_multiplier) ** 8
        for row in discrete
    )
    return math.sqrt(divergence / 2)
