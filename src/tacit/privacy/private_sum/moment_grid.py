"""The public whole numbers of a release of second moments: how finely rows are cut, and what for.

Shapes: D numbers of a row, its constant among them. K targets, and W numbers of a release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

from tacit.errors import ConfigError
from tacit.privacy.accounting import TAIL
from tacit.privacy.noise.grid import noise_units
from tacit.privacy.plan import Plan

# 41/29 is just below √2: an entry beside the diagonal stands for two, and 41² <= 2·29².
ON_DIAGONAL: Final = 29
BESIDE_DIAGONAL: Final = 41
MOST_FEATURES: Final = 4096  # D: 8 million moments, 32 MB of a message
_BITS: Final = 22  # that are cut off, at random, when all rows are added up
_ROOM: Final = 2.0**-10  # of a row's length, left for whole roots of its squares
_LEAST: Final = 0.25  # of C, below which rounding would take most of a row


def moments_of(features: int, targets: int) -> int:
    """Return W: the upper half of XᵀX, and Xᵀy."""
    return features * (features + 1) // 2 + features * targets


@dataclass(frozen=True, slots=True)
class MomentGrid:
    """Whole numbers that a row becomes, and the steps of the noise that its moments are.

    length: M, the most that the root of a unit's moments is. bits: k; 2^k whole numbers are a step.
    deviation: of the noise, in steps. A row u of whole numbers with targets r adds 29u_i² on the
    diagonal, 41u_i·u_j beside it and 29u_i·r_j. Its l2 norm is at most 29‖u‖·√(‖u‖² + ‖r‖²),
    which is at most 29M². So it is at most `share`·C/step steps, before it is rounded.
    """

    length: int
    bits: int
    deviation: float

    @classmethod
    def of(cls, plan: Plan, features: int, targets: int) -> Self:
        """Return the grid of a plan with noise.

        Raises ConfigError for more numbers than a message has, or than so much noise can carry.
        """
        if features > MOST_FEATURES:
            raise ConfigError(
                f"algorithm.name=least-squares: a row has {features - 1:,} numbers, at most "
                f"{MOST_FEATURES - 1:,} are taken; choose fewer by data.features"
            )
        deviation = noise_units(plan.noise_multiplier)
        most = deviation / plan.noise_multiplier  # C/step
        longest = longest_before(most, moments_of(features, targets))
        if longest < _LEAST * most:
            raise ConfigError(
                f"privacy.epsilon={plan.epsilon:g}: noise of z={plan.noise_multiplier:g} leaves "
                f"nothing of the moments of {features - 1:,} numbers; choose a larger ε, or fewer "
                "numbers by data.features"
            )
        length = math.isqrt(math.floor(longest * 2.0**_BITS / ON_DIAGONAL))
        return cls(length, _BITS, deviation)

    @property
    def scale(self) -> float:
        """What a row of length 1 is multiplied by, before its numbers are cut toward zero."""
        return self.length * (1 - _ROOM)

    @property
    def unit(self) -> float:
        """The steps of u_i² and u_i·r_j of a row with u_i = r_j = 1, before it is scaled."""
        return ON_DIAGONAL * self.scale**2 / 2.0**self.bits


def longest_before(most: float, moments: int) -> float:
    """Return the most steps of a vector that rounding at random leaves within `most` steps.

    An entry v becomes one of the two whole numbers beside it, so that its mean stays. Its square
    then has a mean of at most v² + 1/4, and its two values lie 2|v| + 1 apart at most. Let
    κ = √(ln(1/TAIL)/2). By Hoeffding's inequality the sum of W squares exceeds
    v² + W/4 + κ(2|v| + √W) with a probability of at most TAIL. The accountant pays for it in δ.
    """
    kappa = math.sqrt(-math.log(TAIL) / 2)
    inside = kappa**2 + most**2 - moments / 4 - kappa * math.sqrt(moments)
    return math.sqrt(inside) - kappa if inside > kappa**2 else 0.0
