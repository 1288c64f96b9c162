"""The most that (ε, δ) lets any attack on the membership of one record reach.

| name | what |
|---|---|
| ε, δ | the guarantee: `add or remove one` |
| α | the false alarms: the share of non-members that an attack calls members (FPR) |
| β | the hits: the share of members that it calls members (TPR) |

Every attack on an (ε, δ)-DP training has β ≤ e^ε·α + δ and 1 - α ≤ e^ε·(1 - β) + δ. Sources:
Wasserman and Zhou, arXiv:0811.2501, and Kairouz et al., arXiv:1311.0776, Theorem 2.1. Both
hold at every threshold of an attack, so the area below the largest β bounds the AUC of any attack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import optimize

_LARGEST = 100.0  # an ε above this is not told from no guarantee


@dataclass(frozen=True, slots=True)
class TradeOff:
    """The guarantee of a training. epsilon: at least 0; delta: from 0 to 1."""

    epsilon: float
    delta: float

    def most_hits(self, alarms: float) -> float:
        """Return the largest β of any attack with α = `alarms`."""
        if self.epsilon > _LARGEST:
            return 1.0
        straight = math.exp(self.epsilon) * alarms + self.delta
        mirrored = 1 - math.exp(-self.epsilon) * (1 - self.delta - alarms)
        return max(0.0, min(1.0, straight, mirrored))

    def most_auc(self) -> float:
        """Return the largest area below the curve of any attack.

        The curve of the largest β has corners at (0, δ), (a, 1 - a), (1 - δ, 1) and (1, 1), with
        a = (1 - δ)/(1 + e^ε). With δ = 0 the area is e^ε/(1 + e^ε).
        """
        if self.epsilon > _LARGEST:
            return 1.0
        delta = self.delta
        corner = (1 - delta) / (1 + math.exp(self.epsilon))
        first = corner * (delta + 1 - corner) / 2
        second = (1 - delta - corner) * (1 - corner + 1) / 2
        return first + second + delta


def epsilon_shown(auc: float, delta: float) -> float:
    """Return the smallest ε at `delta` that allows an attack this AUC.

    It is 0 for what no guarantee excludes, and at most 100.
    """
    if auc <= TradeOff(0.0, delta).most_auc():
        return 0.0
    if auc >= TradeOff(_LARGEST, delta).most_auc():
        return _LARGEST
    root = optimize.brentq(lambda epsilon: TradeOff(epsilon, delta).most_auc() - auc, 0.0, _LARGEST)
    return float(root)
