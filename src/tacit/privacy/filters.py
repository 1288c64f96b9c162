"""Budgets that hold when q and z are chosen on the way: a Rényi filter at one order.

The certified push count (`accounting.certified_pushes`) needs (q, z) fixed in advance. A schedule that looks at what
was released before it chooses the next noise is outside every theorem behind that count, and outside PLD and the
minimum over Rényi orders. Feldman and Zrnic (arXiv:2008.11193, theorem 4.3) prove the case with *one* order α,
fixed beforehand: as long as the sum of the releases' divergences at α stays within B, the whole is (α, B)-RDP,
however adaptively they were chosen. B is what (ε, δ) leaves at that order (privacy.md §3.3).
"""

from __future__ import annotations

import math

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import ORDERS, History, Spend, rdp_vector
from tacit.privacy.sampling import TAIL

_ASIDE = 0.1  # this share of δ pays for padded batches that cut a draw (sampling.TAIL each)


class RenyiFilter:
    """Accepts releases, chosen adaptively, while their total at one order stays within (epsilon, delta)."""

    def __init__(self, epsilon: float, delta: float, order: int, history: History = ()) -> None:
        """Fix the order and the budget; `history` is what was released before, which counts in full.

        Raises PrivacyError when (epsilon, delta) leaves nothing at `order`, and ValueError for an order that is not
        one of accounting.ORDERS.
        """
        self._index = ORDERS.index(order)
        self.order = order
        self.budget = _budget(epsilon, delta, order)
        self.spent = 0.0
        # The cut draws are paid for in δ, so their number is bounded beforehand as well.
        self._left = int(_ASIDE * delta / ((1 + math.exp(epsilon)) * TAIL)) if epsilon < 700 else 0
        if self.budget <= 0 or self._left < 1:
            raise PrivacyError(
                f"epsilon={epsilon}: at delta={delta} and order {order} it pays for no release"
            )
        for row in history:
            self._add(row)

    @classmethod
    def planned(
        cls,
        epsilon: float,
        delta: float,
        sampling_rate: float,
        noise_multiplier: float,
        mechanism: str = "gaussian",
        history: History = (),
    ) -> RenyiFilter:
        """The filter whose order lets the most releases at the *planned* (q, z) through, after `history`.

        The plan need not be kept: only the order, chosen from public numbers, depends on it. Raises PrivacyError
        when no order pays for a single release.
        """
        one = rdp_vector(Spend(sampling_rate, noise_multiplier, 1, mechanism))
        before = [
            sum(row.count * float(rdp_vector(row)[i]) for row in history if row.count)
            for i in range(len(one))
        ]

        def fits(index: int) -> float:
            return (_budget(epsilon, delta, ORDERS[index]) - before[index]) / float(one[index])

        best = max(range(len(ORDERS)), key=fits)
        if not fits(best) >= 1:  # so that nan, of releases without noise, fails too
            raise PrivacyError(
                f"epsilon={epsilon}: at delta={delta} it pays for no release at {noise_multiplier=}"
            )
        return cls(epsilon, delta, ORDERS[best], history)

    def accepts(self, spend: Spend) -> bool:
        """Whether `spend` still fits. Once False, it is False for ever for it and for whatever costs as much."""
        return self.spent + self._cost(spend) <= self.budget and spend.count <= self._left

    def charge(self, spend: Spend) -> None:
        """Count `spend`, before it is computed. Raises BudgetSpent, and counts nothing, when it does not fit."""
        if not self.accepts(spend):
            raise BudgetSpent(
                f"order {self.order}: {self.spent:.4g} of {self.budget:.4g} spent, the next release is more"
            )
        self._add(spend)

    def _add(self, spend: Spend) -> None:
        self.spent += self._cost(spend)
        self._left -= spend.count

    def _cost(self, spend: Spend) -> float:
        return spend.count * float(rdp_vector(spend)[self._index]) if spend.count else 0.0


def _budget(epsilon: float, delta: float, order: int) -> float:
    """B*: the largest (order, B)-RDP that implies (epsilon, delta)-DP (Canonne et al., arXiv:2004.00010, Prop. 12)."""
    usable = (1 - _ASIDE) * delta
    return epsilon - math.log1p(-1 / order) + (math.log(usable) + math.log(order)) / (order - 1)
