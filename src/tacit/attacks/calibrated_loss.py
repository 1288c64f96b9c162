"""Membership by loss, set against what is usual of the class: needs no other model.

Some classes are harder than others, so one threshold of the loss is not right for all (Song and
Mittal, arXiv:2003.10595, section 4). A part of the non-members shows what is usual of each class.
The attack is measured on the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.attacks.measured import ScoreVector

_FEW = 5  # records of a class that show nothing; all classes then do
_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class UsualSignals:
    """Mean and deviation of the signals of non-members, of each class and of all."""

    of_class: dict[int, tuple[float, float]]
    of_all: tuple[float, float]

    @classmethod
    def of(cls, signals: ScoreVector, classes: npt.NDArray[np.int64]) -> UsualSignals:
        """Return what is usual of these non-members: signals (n,), classes (n,)."""
        of_classes = {
            int(label): _normal(signals[classes == label])
            for label in np.unique(classes)
            if (classes == label).sum() >= _FEW
        }
        return cls(of_classes, _normal(signals))

    def scores(self, signals: ScoreVector, classes: npt.NDArray[np.int64]) -> ScoreVector:
        """Return how far signals (n,) are above what is usual, in deviations."""
        usual = np.array([self.of_class.get(int(label), self.of_all) for label in classes])
        scores: ScoreVector = (signals - usual[:, 0]) / usual[:, 1]
        return scores


def _normal(signals: ScoreVector) -> tuple[float, float]:
    deviation = float(signals.std(ddof=1)) if len(signals) > 1 else 0.0
    return float(signals.mean()), max(deviation, _LEAST)
