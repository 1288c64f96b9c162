"""What one row is in second moments: its numbers and a constant, its targets, and its length.

Shapes: n rows of D numbers, the constant among them, and K targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

CONSTANT: Final = 1.0  # the number after a row's own, for the intercept
SHARE: Final = 1.0  # β: the length of a row's targets, in lengths of its numbers

MomentReals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MomentRows:
    """The public rule by which a row is scaled, from that row alone.

    features: D. classes: how many, or 0 where the target is a number from 0 to 1. weights: of each
    class, at most 1, or () where all weigh 1. norm: the length of a usual row, for a number.
    """

    features: int
    classes: int
    weights: tuple[float, ...] = ()
    norm: float = math.inf

    @property
    def targets(self) -> int:
        """K: one for each class, or the number."""
        return self.classes or 1

    def scaled(self, x: MomentReals, y: NDArray[np.generic]) -> tuple[MomentReals, MomentReals]:
        """Return rows (n, D) and targets (n, K): u and r with ‖u‖²(‖u‖² + ‖r‖²) <= 1.

        A row is divided by its length, so that no bound on it is needed. One that is not finite, or
        whose target is not, becomes zeros.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            longer = np.concatenate([x, np.full((len(x), 1), CONSTANT)], axis=1)
            norms = np.linalg.norm(longer, axis=1)
            sound = np.isfinite(norms) & np.isfinite(y.astype(np.float64))
        longer = np.where(sound[:, None], longer, 0.0)
        norms = np.where(sound, norms, 1.0)
        budget = np.sqrt(self._weights(y)) / (1 + SHARE**2) ** 0.25
        factors = np.where(sound, budget, 0.0)
        unit = longer / norms[:, None] * factors[:, None]
        near = np.minimum(1.0, self.norm / norms)
        targets = SHARE * (factors * near)[:, None] * self._targets(np.where(sound, y, 0))
        return unit, targets

    def _weights(self, y: NDArray[np.generic]) -> MomentReals:
        if not self.weights:
            return np.ones(len(y))
        return np.asarray(self.weights, np.float64)[y.astype(np.int64)]

    def _targets(self, y: NDArray[np.generic]) -> MomentReals:
        """Return targets (n, K) of length 1 at most.

        A class is one of the corners of a simplex about 0; a number is brought to -1 … 1.
        """
        if not self.classes:
            number: MomentReals = np.clip(2 * y.astype(np.float64) - 1, -1.0, 1.0)[:, None]
            return number
        corners = np.eye(self.classes) - 1 / self.classes
        chosen: MomentReals = corners[y.astype(np.int64)] / math.sqrt(1 - 1 / self.classes)
        return chosen
