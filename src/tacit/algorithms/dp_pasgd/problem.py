"""The design problem of DP-PASGD: what a device may spend, and what is known of loss and data.

Paper: arXiv:2003.12705, sections 5 and 6. `DesignProblem` has its numbers under plain names,
checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tacit.errors import ConfigError
from tacit.rounding import beside

MOST: Final = 1e30  # the largest number allowed, so that no product overflows
LEAST_DELTA: Final = 1e-300  # below, 1/δ is no floating-point number
ONE: Final = 1 + 1e-12  # 1, in (21e), as far as floating point knows


@dataclass(frozen=True, slots=True)
class DesignProblem:
    """The input of problem (21).

    Its numbers are public: estimated on private data, they would be a leak that nobody counts.
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
            need(
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
            need(1 <= value <= MOST, name, value, "expected a number of at least 1")
        for name, value in (("c1", self.c1), ("c2", self.c2), ("variance", self.variance or 0.0)):
            need(0 <= value <= MOST, name, value, "expected a number of at least 0")
        delta_range = f"expected a number above 0 and below 1 (and at least {LEAST_DELTA:g})"
        need(LEAST_DELTA <= self.delta < 1, "delta", self.delta, delta_range)
        sizes = ",".join(f"{size:g}" for size in self.batch)
        why = f"{len(self.batch)} sizes for devices={self.devices}; give one, or one each"
        need(len(self.batch) in (1, self.devices), "batch", sizes, why)
        need(self.c1 + self.c2 > 0, "c1", self.c1, "c2 is 0 too; something must cost something")
        rate = self.lr * self.smoothness
        need(
            rate <= ONE,
            "lr",
            self.lr,
            f"times smoothness={self.smoothness:g} is {beside(rate, 1, 6)}, above 1: (21e)",
        )
        rate = self.lr * self.strong_convexity
        need(
            rate < 1,
            "lr",
            self.lr,
            f"times strong_convexity={self.strong_convexity:g} is {beside(rate, 1, 6)}; "
            "below 1 needed",
        )
        need(
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


def need(holds: bool, name: str, value: object, why: str) -> None:
    """Raise ConfigError, which names the field and its value, unless `holds`."""
    if not holds:
        raise ConfigError(f"{name}={value}: {why}")
