"""The optimal design of DP-PASGD: how many steps K, how many of them between two averages τ, how
much noise σ.

Paper: "Differentially Private Federated Learning for Resource-Constrained IoT" (arXiv:2003.12705),
sections 5 to 7. M devices take K local steps each and average every τ of them, R = K/τ rounds; a
device may spend C_th of a resource and (ε_th, δ) of privacy. `plan()` minimises a bound on E[L(θ) -
L*] over every feasible pair (R, τ).

The paper's own formulas are here under their numbers and are wrong in two places
(docs/algorithms.md has figures): `paper_scale` (25) takes the root of (23) that spends 5 to 77
times ε_th, and `paper_bound` (12) divides by K what no step of its proof divides. `scale`,
`last_iterate` and `average_iterate` replace them.

All noise is z = σ_m X_m / G, the noise multiplier of the rest of tacit, the same for every device:
σ_m = zG/X_m.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from tacit.errors import ConfigError, PrivacyError
from tacit.privacy import accounting

Planner = Literal["corrected", "paper", "poisson"]
MECHANISM: Final = "discrete_gaussian"  # what the Poisson planner accounts: a run file's default
PAIRS: Final = 2_000_000  # (rounds, tau) that one search compares at most: a second, 100 MB
MOST: Final = (
    1e30  # of any number given, so that no product of them leaves the floating-point numbers
)
LEAST_DELTA: Final = 1e-300  # below, 1/δ is no floating-point number
_ONE = 1 + 1e-12  # 1, in (21e), as far as floating point knows
_UP = 1 + 1e-12  # on z², so that (9), computed back in floating point, never shows more than ε_th
_CALIBRATIONS = 5  # of z over K that the Poisson planner begins with
_WORTH = 1e-3  # a pair that promises to lower the bound by a smaller part is not calibrated

Numbers = NDArray[np.float64]
Bound = Callable[["Problem", Numbers, Numbers], Numbers]  # (problem, K, B) → bound on E[L(θ) - L*]


@dataclass(frozen=True, slots=True)
class Problem:
    """What (21) is given. Public numbers only: estimated on private data, they would be a leak that
    nobody counts.

    epsilon, delta: ε_th, δ of each device. devices: M. batch: X_m, one for all or one per device.
    lipschitz: G, also the clip of one example's gradient. dim: d. smoothness: L. strong_convexity:
    λ. lr: η. c1, c2: cost of one average and of one local step, of which `resource` C_th may be
    spent. gap: α = L(θ⁰) - L*. variance: ξ²; None: G²/X_m, the most that X_m gradients of norm G
    can have. Raises ConfigError that names the field and its value.
    """

    epsilon: float
    delta: float
    devices: int
    batch: tuple[float, ...]
    lipschitz: float
    dim: int
    smoothness: float
    strong_convexity: float
    lr: float
    c1: float
    c2: float
    resource: float
    gap: float = math.log(2)
    variance: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "epsilon",
            "lipschitz",
            "smoothness",
            "strong_convexity",
            "lr",
            "resource",
            "gap",
        ):
            value = getattr(self, name)
            _need(
                1 / MOST <= value <= MOST,
                name,
                value,
                f"expected a number above 0 (and at most {MOST:g})",
            )
        for name, value in (
            ("devices", self.devices),
            ("dim", self.dim),
            *(("batch", size) for size in self.batch),
        ):
            _need(1 <= value <= MOST, name, value, "expected a number of at least 1")
        for name, value in (("c1", self.c1), ("c2", self.c2), ("variance", self.variance or 0.0)):
            _need(0 <= value <= MOST, name, value, "expected a number of at least 0")
        said = f"expected a number above 0 and below 1 (and at least {LEAST_DELTA:g})"
        _need(LEAST_DELTA <= self.delta < 1, "delta", self.delta, said)
        sizes = ",".join(f"{size:g}" for size in self.batch)
        why = f"{len(self.batch)} sizes for devices={self.devices}; give one, or one each"
        _need(len(self.batch) in (1, self.devices), "batch", sizes, why)
        _need(self.c1 + self.c2 > 0, "c1", self.c1, "c2 is 0 too; something must cost something")
        rate = self.lr * self.smoothness
        _need(
            rate <= _ONE,
            "lr",
            self.lr,
            f"times smoothness={self.smoothness:g} is {rate:g}, above 1: (21e)",
        )
        rate = self.lr * self.strong_convexity
        _need(
            rate < 1,
            "lr",
            self.lr,
            f"times strong_convexity={self.strong_convexity:g} is {rate:g}; below 1 needed",
        )
        _need(
            self.strong_convexity <= self.smoothness,
            "strong_convexity",
            self.strong_convexity,
            f"is above smoothness={self.smoothness:g}, and no function is so",
        )

    @property
    def inverse_square(self) -> float:
        """(1/M) Σ 1/X_m²: what z²G² is multiplied with to give the mean σ_m²."""
        return math.fsum(1 / x**2 for x in self.batch) / len(self.batch)

    @property
    def xi2(self) -> float:
        """ξ², given or its largest possible value, (1/M) Σ G²/X_m."""
        if self.variance is not None:
            return self.variance
        return self.lipschitz**2 * math.fsum(1 / x for x in self.batch) / len(self.batch)


@dataclass(frozen=True, slots=True)
class Plan:
    """A design and what it costs. `sigma` is the root mean square of `sigmas`, one per entry of
    Problem.batch.

    epsilon: recomputed from K and z, by (9) for `corrected` and `paper`, by PLD for `poisson`; the
    paper's exceeds ε_th. predicted_loss: the bound that was minimised, on E[L(θ) - L*];
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


# -- cost and privacy ------------------------------------------------------------------------------


def cost(p: Problem, rounds: Numbers, tau: Numbers) -> Numbers:
    """(8), what one device spends: C = c1·K/τ + c2·K, with K = Rτ."""
    return p.c1 * rounds + p.c2 * rounds * tau


def epsilon_zcdp(K: float, z: float, delta: float) -> float:
    """(9): ε of K steps, each on a batch of which one record may be replaced (sensitivity 2G/X_m,
    nothing amplified).

    ρ = K (2G/X_m)² / (2σ_m²) = 2K/z² by Lemmas 1 and 2, ε = ρ + 2√(ρ ln(1/δ)) by Lemma 3.
    """
    rho = 2 * K / z**2
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def scale(epsilon: float, delta: float) -> float:
    """Z of z² = 2K/Z:

    the ρ that (9) lets K steps spend, √ρ = √(ln(1/δ) + ε) - √ln(1/δ), without cancellation.
    """
    log = math.log(1 / delta)
    return epsilon**2 / (epsilon + 2 * log + 2 * math.sqrt(log**2 + epsilon * log))


def paper_scale(epsilon: float, delta: float) -> float:
    """(25) as printed, the other root:

    it is a ρ of -√ln(1/δ) - √(ln(1/δ) + ε), so σ is 5 to 39 times too small.
    """
    log = math.log(1 / delta)
    return epsilon + 2 * log + 2 * math.sqrt(log**2 + epsilon * log)


# -- convergence -----------------------------------------------------------------------------------


def variance_floor(p: Problem, tau: Numbers, z2: Numbers) -> Numbers:
    """(13), B: where the error ends. Needs (21e), and E g = the *global* gradient:

    devices with data alike.
    """
    M, L, eta, lam = p.devices, p.smoothness, p.lr, p.strong_convexity
    sigma2 = z2 * p.lipschitz**2 * p.inverse_square  # (1/M) Σ σ_m²
    return (eta * L + eta**2 * L**2 * (tau - 1) * M) / (2 * lam * M) * (p.xi2 + p.dim * sigma2)


def paper_bound(p: Problem, K: Numbers, B: Numbers) -> Numbers:
    """(12) as printed, F of (21a); false:

    without any noise it falls below the true gap (privacy.md §5).
    """
    return (1 - p.lr * p.strong_convexity) ** K * (p.gap - B) / K + B


def last_iterate(p: Problem, K: Numbers, B: Numbers) -> Numbers:
    """(1 - ηλ)^K (α - B) + B, for the last iterate: (17) unrolled step by step instead of averaged.

    Exact for τ = 1. For τ > 1 the drift cancels against the gradients only up to the weights (1 -
    ηλ)^i of the steps since the last average; an approximation, and the objective of the planners
    `corrected` and `poisson`.
    """
    left = np.exp(K * math.log1p(-p.lr * p.strong_convexity))
    return left * p.gap + (1 - left) * B


def average_iterate(p: Problem, K: Numbers, B: Numbers) -> Numbers:
    """α(1 - ηλ)(1 - (1 - ηλ)^K)/(ηλK) + B:

    provable, for the mean of all K iterates' gaps, so for the best too.
    """
    step = p.lr * p.strong_convexity
    return p.gap * (1 - step) * -np.expm1(K * math.log1p(-step)) / (step * K) + B


# -- what the noise is for K steps -----------------------------------------------------------------


class Zcdp:
    """(23) in z: z² = 2K/Z, with Z of `scale` or of `paper_scale`."""

    def __init__(self, p: Problem, Z: float) -> None:
        self._p, self._Z = p, Z

    def squares(self, K: Numbers) -> Numbers:
        """z² for K steps."""
        return 2 * K / self._Z * _UP

    def exact(self, K: int) -> float:
        """z for K steps."""
        return math.sqrt(2 * K / self._Z * _UP)

    def epsilon(self, K: int, z: float) -> float:
        """What K steps at z cost by (9)."""
        return epsilon_zcdp(K, z, self._p.delta)


class Poisson:
    """z for batches drawn with probability q:

    calibrated by PLD at some K, interpolated between them.
    """

    def __init__(self, p: Problem, sampling_rate: float, most: int) -> None:
        """Calibrate at a few K from 1 to `most`. Raises ConfigError when no noise reaches ε_th."""
        self._p, self._rate = p, sampling_rate
        self.known: dict[int, float] = {}
        for K in np.geomspace(1, most, _CALIBRATIONS).round():
            self.exact(int(K))

    def exact(self, K: int) -> float:
        """The least z for K steps, on tacit's grid of 0.001: about a second each new K."""
        p = self._p
        if K not in self.known:
            try:
                self.known[K] = accounting.calibrate(p.epsilon, p.delta, K, self._rate, MECHANISM)
            except PrivacyError as error:
                raise ConfigError(str(error)) from error
        return self.known[K]

    def squares(self, K: Numbers) -> Numbers:
        """z² for K steps: exact where it is known, else on a straight line of ln z over ln K."""
        at = sorted(self.known)
        z = np.array([self.known[k] for k in at])
        between: Numbers = np.exp(2 * np.interp(np.log(K), np.log(at), np.log(z)))
        return between

    def epsilon(self, K: int, z: float) -> float:
        """What K steps at z cost by PLD."""
        return accounting.epsilon_pld(
            [accounting.Spend(self._rate, z, K, MECHANISM)], self._p.delta
        )


# -- the search ------------------------------------------------------------------------------------


def plan(p: Problem, planner: Planner = "corrected", sampling_rate: float | None = None) -> Plan:
    """The best feasible pair (R, τ) under `planner`'s privacy model and bound.

    corrected: (9) with its own root, and `last_iterate`. paper: (12), (13), (23) and (25) as
    printed, so that σ is too small; over the feasible pairs, not `relaxed` and rounded. poisson:
    every batch drawn with probability `sampling_rate` and accounted by PLD, which is what tacit's
    devices do, and `last_iterate`; z is exact for the plan's K, and no other pair promises a bound
    lower by more than a thousandth. Raises ConfigError when nothing is feasible or no noise reaches
    ε_th.
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
        surely = np.where(np.isin(K, list(drawn.known)), losses, math.inf)
        if losses.min() >= surely.min() * (1 - _WORTH):
            return _plan(
                p, planner, drawn, (rounds, tau, losses), int(surely.argmin()), sampling_rate
            )
        drawn.exact(int(K[losses.argmin()]))


def pairs(p: Problem) -> tuple[Numbers, Numbers]:
    """Every (R, τ) within (21d) and (21e), in order of τ, then R: two arrays of one length.

    Raises ConfigError when there is none, or when there are more than PAIRS.
    """
    _need(
        p.c1 + p.c2 <= p.resource,
        "resource",
        p.resource,
        f"one step and one average cost {p.c1 + p.c2:g}: no plan",
    )
    rate, longest = p.lr * p.smoothness, longest_period(p)
    if p.c2:
        longest = min(longest, (p.resource - p.c1) / p.c2)
    taus = np.arange(1.0, min(int(longest) + 2, PAIRS) + 1)
    taus = taus[(rate + rate**2 * taus * (taus - 1) <= _ONE) & (p.c1 + p.c2 * taus <= p.resource)]
    most = np.minimum(p.resource / (p.c1 + p.c2 * taus) + 1, PAIRS + 1).astype(np.int64)
    total = int(most.sum())
    _need(
        total <= PAIRS,
        "resource",
        p.resource,
        f"pays for more than {PAIRS} pairs of rounds and tau to compare",
    )
    tau = np.repeat(taus, most)
    rounds = np.arange(1.0, total + 1) - np.repeat(np.cumsum(most) - most, most)
    within = cost(p, rounds, tau) <= p.resource
    return rounds[within], tau[within]


def longest_period(p: Problem) -> float:
    """The largest τ within (21e), ηL + η²L²τ(τ - 1) <= 1; a real number."""
    rate = p.lr * p.smoothness
    return (1 + math.sqrt(1 + 4 * (1 - rate) / rate**2)) / 2


def relaxed(p: Problem) -> tuple[float, float]:
    """(24): the paper's K*, a real number, with its Z; and τ* by (22). Rounded to integers, it may
    pass C_th.

    (22) needs τ >= 1, so K >= C_th/(c1 + c2); (21e) ends the search above.
    """
    Z, longest = paper_scale(p.epsilon, p.delta), longest_period(p)

    def period(K: Numbers) -> Numbers:
        return np.maximum(1.0, p.c1 * K / (p.resource - p.c2 * K))  # (22)

    def objective(K: Numbers) -> Numbers:
        return paper_bound(p, K, variance_floor(p, period(K), 2 * K / Z))

    grid = np.linspace(
        p.resource / (p.c1 + p.c2), p.resource * longest / (p.c1 + p.c2 * longest), 2001
    )
    best = int(objective(grid).argmin())
    around = (grid[max(best - 1, 0)], grid[min(best + 1, 2000)])
    K = float(minimize_scalar(objective, bounds=around, method="bounded").x)
    return K, float(period(np.array([K]))[0])


def _losses(
    p: Problem, rounds: Numbers, tau: Numbers, noise: Zcdp | Poisson, bound: Bound
) -> Numbers:
    K = rounds * tau
    return bound(p, K, variance_floor(p, tau, noise.squares(K)))


def _plan(
    p: Problem,
    planner: Planner,
    noise: Zcdp | Poisson,
    searched: tuple[Numbers, Numbers, Numbers],
    best: int,
    sampling_rate: float | None,
) -> Plan:
    rounds, tau, losses = (each[best : best + 1] for each in searched)
    K, z = int(rounds[0] * tau[0]), noise.exact(int(rounds[0] * tau[0]))
    B = variance_floor(p, tau, np.array([z**2]))
    first = np.flatnonzero(np.diff(searched[1], prepend=0))  # where each τ begins
    least = np.minimum.reduceat(searched[2], first)
    return Plan(
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


def _need(holds: bool, name: str, value: object, why: str) -> None:
    if not holds:
        raise ConfigError(f"{name}={value}: {why}")
