"""The optimal design of DP-PASGD: steps K, period τ and noise σ for two budgets.

Paper: "Differentially Private Federated Learning for Resource-Constrained Internet of Things"
(arXiv:2003.12705), sections 5 to 7. M devices take K local steps each and average every τ of them,
R = K/τ rounds; a device may spend C_th of a resource and (ε_th, δ) of privacy. `plan()` minimises a
bound on E[L(θ) - L*] over every feasible pair (R, τ). The formulas are in formulas.py, what they
are given in problem.py.

All noise is z = σ_m X_m / G, the noise multiplier of the rest of tacit, the same for every device:
σ_m = zG/X_m.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tacit.algorithms.dp_pasgd.formulas import (
    Numbers,
    average_iterate,
    cost,
    epsilon_zcdp,
    last_iterate,
    longest_period,
    paper_bound,
    paper_scale,
    scale,
    variance_floor,
)
from tacit.algorithms.dp_pasgd.problem import ONE, DesignProblem, need
from tacit.errors import ConfigError, PrivacyError
from tacit.privacy import accounting

Planner = Literal["corrected", "paper", "poisson"]
MECHANISM: Final = "discrete_gaussian"  # a run file's default, as the planner accounts
PAIRS: Final = 2_000_000  # (rounds, tau) that one search compares at most: a second, 100 MB
_UP = 1 + 1e-12  # on z², so that (9), computed back in floating point, never shows more than ε_th
_CALIBRATIONS = 5  # values of K for which the Poisson planner first calibrates z
_WORTH = 1e-3  # a pair that promises to lower the bound by a smaller part is not calibrated

Bound = Callable[
    ["DesignProblem", Numbers, Numbers], Numbers
]  # (problem, K, B) → bound on E[L(θ) - L*]


@dataclass(frozen=True, slots=True)
class DesignedRun:
    """A design and what it costs.

    `sigma` is the root mean square of `sigmas`, one per entry of Problem.batch.

    epsilon: recomputed from K and z, by (9) for `corrected` and `paper`, by PLD for `poisson`. The
    paper's exceeds ε_th. predicted_loss: the bound that was minimised, on E[L(θ) - L*].
    average_loss: the provable bound of the same design, on the mean over all K iterates. objective:
    (τ, least bound over R), for each τ that is feasible.
    """

    planner: Planner
    K: int
    tau: int
    rounds: int
    sigma: float
    sigmas: tuple[float, ...]
    noise_multiplier: float
    sampling_rate: float | None
    predicted_loss: float
    average_loss: float
    resource: float
    epsilon: float
    delta: float
    objective: tuple[tuple[int, float], ...]


# -- what the noise is for K steps -----------------------------------------------------------------


class Zcdp:
    """(23) in z: z² = 2K/Z, with Z of `scale` or of `paper_scale`."""

    def __init__(self, p: DesignProblem, Z: float) -> None:
        self._p = p
        self._Z = Z

    def squares(self, K: Numbers) -> Numbers:
        """Return z² for K steps."""
        return 2 * K / self._Z * _UP

    def exact(self, K: int) -> float:
        """Return z for K steps."""
        return math.sqrt(2 * K / self._Z * _UP)

    def epsilon(self, K: int, z: float) -> float:
        """Return the ε of K steps at z by (9)."""
        return epsilon_zcdp(K, z, self._p.delta)


class Poisson:
    """z for batches drawn with probability q.

    Calibrated by PLD at some K, interpolated between them.
    """

    def __init__(self, p: DesignProblem, sampling_rate: float, most: int) -> None:
        """Calibrate at a few K from 1 to `most`. Raises ConfigError when no noise reaches ε_th."""
        self._p = p
        self._rate = sampling_rate
        self.calibrated: dict[int, float] = {}
        for K in np.geomspace(1, most, _CALIBRATIONS).round():
            self.exact(int(K))

    def exact(self, K: int) -> float:
        """Return the least z for K steps, on a grid of 0.001; each new K takes about a second."""
        p = self._p
        if K not in self.calibrated:
            try:
                self.calibrated[K] = accounting.calibrate(
                    p.epsilon, p.delta, K, self._rate, MECHANISM
                )
            except PrivacyError as error:
                raise ConfigError(str(error)) from error
        return self.calibrated[K]

    def squares(self, K: Numbers) -> Numbers:
        """Return z² for K steps: exact where known, else on a line of ln z over ln K."""
        at = sorted(self.calibrated)
        z = np.array([self.calibrated[k] for k in at])
        between: Numbers = np.exp(2 * np.interp(np.log(K), np.log(at), np.log(z)))
        return between

    def epsilon(self, K: int, z: float) -> float:
        """Return the ε of K steps at z by PLD."""
        return accounting.epsilon_pld(
            [accounting.Spend(self._rate, z, K, MECHANISM)], self._p.delta
        )


# -- the search ------------------------------------------------------------------------------------


def plan(
    p: DesignProblem, planner: Planner = "corrected", sampling_rate: float | None = None
) -> DesignedRun:
    """Return the best feasible pair (R, τ) under `planner`'s privacy model and bound.

    corrected: (9) with its own root, and `last_iterate`. paper: (12), (13), (23) and (25) as
    printed, so that σ is too small, over the feasible pairs, not `relaxed` and rounded. poisson:
    every batch drawn with probability `sampling_rate` and accounted by PLD, as tacit's devices do,
    and `last_iterate`. z is exact for the plan's K, and no other pair promises a bound lower by
    more than a thousandth. Raises ConfigError when nothing is feasible or no noise reaches ε_th.
    """
    rounds, tau = pairs(p)
    if planner != "poisson":
        Z = (paper_scale if planner == "paper" else scale)(p.epsilon, p.delta)
        noise = Zcdp(p, Z)
        losses = _losses(p, rounds, tau, noise, paper_bound if planner == "paper" else last_iterate)
        return _plan(p, planner, noise, (rounds, tau, losses), int(losses.argmin()), None)
    if sampling_rate is None or not 0 < sampling_rate <= 1:
        raise ConfigError(
            f"sampling_rate={sampling_rate}: planner poisson needs a number above 0 and at most 1"
        )
    K = rounds * tau
    drawn = Poisson(p, sampling_rate, int(K.max()))
    while True:
        losses = _losses(p, rounds, tau, drawn, last_iterate)
        surely = np.where(np.isin(K, list(drawn.calibrated)), losses, math.inf)
        if losses.min() >= surely.min() * (1 - _WORTH):
            return _plan(
                p, planner, drawn, (rounds, tau, losses), int(surely.argmin()), sampling_rate
            )
        drawn.exact(int(K[losses.argmin()]))


def pairs(p: DesignProblem) -> tuple[Numbers, Numbers]:
    """Return every (R, τ) within (21d) and (21e), in order of τ, then R: two arrays of one length.

    Raises ConfigError when there is none, or when there are more than PAIRS.
    """
    need(
        p.c1 + p.c2 <= p.resource,
        "resource",
        p.resource,
        f"one step and one average cost {p.c1 + p.c2:g}: no plan",
    )
    rate = p.lr * p.smoothness
    longest = longest_period(p)
    if p.c2:
        longest = min(longest, (p.resource - p.c1) / p.c2)
    taus = np.arange(1.0, min(int(longest) + 2, PAIRS) + 1)
    taus = taus[(rate + rate**2 * taus * (taus - 1) <= ONE) & (p.c1 + p.c2 * taus <= p.resource)]
    most = np.minimum(p.resource / (p.c1 + p.c2 * taus) + 1, PAIRS + 1).astype(np.int64)
    total = int(most.sum())
    need(
        total <= PAIRS,
        "resource",
        p.resource,
        f"pays for more than {PAIRS} pairs of rounds and tau to compare",
    )
    tau = np.repeat(taus, most)
    rounds = np.arange(1.0, total + 1) - np.repeat(np.cumsum(most) - most, most)
    within = cost(p, rounds, tau) <= p.resource
    return rounds[within], tau[within]


def relaxed(p: DesignProblem) -> tuple[float, float]:
    """Return (24), the paper's K* as a real number with its Z, and τ* by (22).

    Rounded to integers, the plan may exceed C_th. (22) needs τ >= 1, so K >= C_th/(c1 + c2); (21e)
    ends the search above.
    """
    Z = paper_scale(p.epsilon, p.delta)
    longest = longest_period(p)

    def period(K: Numbers) -> Numbers:
        return np.maximum(1.0, p.c1 * K / (p.resource - p.c2 * K))  # (22)

    def objective(K: Numbers) -> Numbers:
        return paper_bound(p, K, variance_floor(p, period(K), 2 * K / Z))

    grid = np.linspace(
        p.resource / (p.c1 + p.c2), p.resource * longest / (p.c1 + p.c2 * longest), 2001
    )
    best = int(objective(grid).argmin())
    around = (grid[max(best - 1, 0)], grid[min(best + 1, 2000)])
    from scipy.optimize import minimize_scalar  # its import is slow, and few runs are designed

    K = float(minimize_scalar(objective, bounds=around, method="bounded").x)
    return K, float(period(np.array([K]))[0])


def _losses(
    p: DesignProblem, rounds: Numbers, tau: Numbers, noise: Zcdp | Poisson, bound: Bound
) -> Numbers:
    K = rounds * tau
    return bound(p, K, variance_floor(p, tau, noise.squares(K)))


def _plan(
    p: DesignProblem,
    planner: Planner,
    noise: Zcdp | Poisson,
    searched: tuple[Numbers, Numbers, Numbers],
    best: int,
    sampling_rate: float | None,
) -> DesignedRun:
    rounds, tau, losses = (each[best : best + 1] for each in searched)
    K = int(rounds[0] * tau[0])
    z = noise.exact(int(rounds[0] * tau[0]))
    B = variance_floor(p, tau, np.array([z**2]))
    first = np.flatnonzero(np.diff(searched[1], prepend=0))  # where each τ begins
    least = np.minimum.reduceat(searched[2], first)
    return DesignedRun(
        planner=planner,
        K=K,
        tau=int(tau[0]),
        rounds=int(rounds[0]),
        sigma=z * p.lipschitz * math.sqrt(p.inverse_square),
        sigmas=tuple(z * p.lipschitz / x for x in p.batch),
        noise_multiplier=z,
        sampling_rate=sampling_rate,
        predicted_loss=float(losses[0]),
        average_loss=float(average_iterate(p, np.array([float(K)]), B)[0]),
        resource=float(cost(p, rounds, tau)[0]),
        epsilon=noise.epsilon(K, z),
        delta=p.delta,
        objective=tuple((int(t), float(F)) for t, F in zip(searched[1][first], least, strict=True)),
    )
