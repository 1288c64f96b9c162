"""Budgets that hold when q and z are chosen on the way: a Rényi filter at one order.

The certified push count (`accounting.certified_pushes`) needs (q, z) fixed in advance. A schedule
that looks at what was released before it chooses the next noise is outside every theorem behind
that count, and outside PLD and the minimum over Rényi orders. Feldman and Zrnic (arXiv:2008.11193,
theorem 4.3) prove the case with *one* order α, fixed beforehand. As long as the sum of the
releases' divergences at α stays within B, the whole is (α, B)-RDP, however adaptively they were
chosen. B is what (ε, δ) leaves at that order.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting.epsilon import TAIL, rdp_vector
from tacit.privacy.accounting.history import SIDES, History, Spend, UnitSide
from tacit.privacy.accounting.privacy_losses import ORDERS
from tacit.rounding import up

_ASIDE = 0.1  # the share of δ that pays for padded batches that cut a draw (epsilon.TAIL each)
_REFERENCE = 100.0  # z of the Gaussian release for which the largest useful ε is chosen
_LARGEST = 100.0  # ε at which no δ pays for a cut draw


class RenyiFilter:
    """A budget for adaptively chosen releases; it accepts them while they keep (epsilon, delta).

    Guarantee: all accepted releases together, and `history`, are (epsilon, delta)-DP, however each
    was chosen after the ones before. Where units are split, each side has the whole budget.
    """

    def __init__(self, epsilon: float, delta: float, order: int, history: History = ()) -> None:
        """Fix the order and the budget; `history` is what was released before, and counts in full.

        Raises PrivacyError when (epsilon, delta) leaves nothing at `order`, and ValueError for an
        order that is not one of accounting.ORDERS.
        """
        self._index = ORDERS.index(order)
        self.order = order
        useful = _useful(epsilon, delta, order)
        self.budget = _budget(useful, delta, order)
        self._of_side = dict.fromkeys(SIDES, 0.0)
        # Cut draws are paid for in δ, so the number of releases is bounded beforehand as well.
        self._remaining = int(_cuts(useful, delta))
        if self.budget <= 0 or self._remaining < 1:
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
        """Return the filter at the order that allows the most releases at the *planned* (q, z).

        Only the order, chosen from public numbers, depends on the plan: later releases may differ
        from it.
        Raises PrivacyError when no order pays for a single release after `history`.
        """
        cost = rdp_vector(Spend(sampling_rate, noise_multiplier, 1, mechanism))
        before = [
            sum(row.count * float(rdp_vector(row)[i]) for row in history if row.count)
            for i in range(len(cost))
        ]

        def fits(index: int) -> float:
            order = ORDERS[index]
            useful = _useful(epsilon, delta, order)
            return (_budget(useful, delta, order) - before[index]) / float(cost[index])

        best = max(range(len(ORDERS)), key=fits)
        if not fits(best) >= 1:  # so that nan, of releases without noise, fails too
            raise PrivacyError(
                f"epsilon={epsilon}: at delta={delta} it pays for no release at {noise_multiplier=}"
            )
        return cls(epsilon, delta, ORDERS[best], history)

    @property
    def spent(self) -> float:
        """What is spent of the budget, on the side that has spent more."""
        return max(self._of_side.values())

    def accepts(self, spend: Spend) -> bool:
        """Check whether `spend` still fits. Once False, it stays False at this cost and above."""
        spent = max(self._of_side[side] for side in _sides(spend))
        return spent + self._cost(spend) <= self.budget and spend.count <= self._remaining

    def charge(self, spend: Spend) -> None:
        """Count `spend`, before it is computed.

        Raises BudgetSpent, and counts nothing, if it does not fit.
        """
        if not self.accepts(spend):
            raise BudgetSpent(
                f"order {self.order}: {up(self.spent)} of {up(self.budget)} spent, the next "
                f"release is more"
            )
        self._add(spend)

    def left(self, spend: Spend) -> int:
        """Return how many more releases like one of `spend` it accepts."""
        single = replace(spend, count=1)
        if not self.accepts(single):
            return 0
        cost = self._cost(single)
        most = self._remaining
        if cost:
            spent = max(self._of_side[side] for side in _sides(spend))
            most = min(most, int((self.budget - spent) / cost))
        while not self.accepts(replace(spend, count=most)):  # a last bit of the division
            most -= 1
        return max(most, 1)

    def _add(self, spend: Spend) -> None:
        for side in _sides(spend):
            self._of_side[side] += self._cost(spend)
        self._remaining -= spend.count

    def _cost(self, spend: Spend) -> float:
        if spend.count:
            return spend.count * float(rdp_vector(spend)[self._index])
        return 0.0


def _sides(spend: Spend) -> tuple[UnitSide, ...]:
    return SIDES if spend.side == "both" else (spend.side,)


def steadiest_order(epsilon: float, delta: float) -> int:
    """Return the order at which (epsilon, delta) pays for the most Gaussian releases.

    The divergence of a Gaussian mechanism at order α is α/(2z²) for every z. So it is the order
    with the largest B(α)/α, a function of these two public numbers alone.
    """
    orders: list[int] = ORDERS
    return max(
        orders, key=lambda order: _budget(_useful(epsilon, delta, order), delta, order) / order
    )


def _useful(epsilon: float, delta: float, order: int) -> float:
    """Return the ε that is held where the owner states `epsilon`: never more, so that it holds.

    A larger ε buys a larger B, but each cut draw costs (1 + e^ε) of δ: beyond some ε it pays for
    fewer releases. That ε is where both run out together, for releases of noise _REFERENCE. It
    depends on δ and the order alone.
    """
    low, high = 0.0, min(epsilon, _LARGEST)
    if not _is_short_of_cuts(high, delta, order):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        if _is_short_of_cuts(middle, delta, order):
            high = middle
        else:
            low = middle
    return low


def _is_short_of_cuts(epsilon: float, delta: float, order: int) -> bool:
    """Return whether δ pays for fewer releases than B does, of noise _REFERENCE."""
    return _cuts(epsilon, delta) * order / (2 * _REFERENCE**2) < _budget(epsilon, delta, order)


def _cuts(epsilon: float, delta: float) -> float:
    """Return how many releases may each cut a draw, within the share of δ for that."""
    return _ASIDE * delta / ((1 + math.exp(epsilon)) * TAIL)


def _budget(epsilon: float, delta: float, order: int) -> float:
    """Return B: the largest (order, B)-RDP that implies (epsilon, delta)-DP.

    Canonne, Kamath and Steinke, arXiv:2004.00010, proposition 12.
    """
    usable = (1 - _ASIDE) * delta
    return epsilon - math.log1p(-1 / order) + (math.log(usable) + math.log(order)) / (order - 1)
