"""The bound on all that is ever released from some data, over all runs: a filter at one order.

Runs at one data are submitted after earlier results were seen, so their q and z are adaptive. Then
`accounting.certified_pushes` bounds nothing. The filter does (docs/privacy.md, "A lifetime").

Example:

    >>> lifetime = Lifetime.begun(epsilon=4.0, delta=1e-5)
    >>> push = Spend(0.05, 2.0, 1)
    >>> lifetime.order, lifetime.left((), push), lifetime.left((Spend(0.1, 4.0, 1000),), push)
    (6, 979, 104)
"""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import BudgetSpent
from tacit.privacy.accounting.filters import RenyiFilter, steadiest_order
from tacit.privacy.accounting.history import History, Spend

UNSTATED = 4.0  # the order of data whose owner states no bound is the one that suits this epsilon


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The owner's bound (epsilon, delta) on some data, and the order at which it is held.

    The owner may raise or lower the bound. The order was fixed when the data's ledger began, and
    stays. Raises PrivacyError where the bound leaves nothing at this order, and ValueError for an
    order that is not one of accounting.ORDERS.
    """

    epsilon: float
    delta: float
    order: int

    def __post_init__(self) -> None:
        self._filter(())

    @classmethod
    def begun(cls, epsilon: float, delta: float) -> Lifetime:
        """Return the bound of data whose ledger begins now, at the order that suits it."""
        return cls(epsilon, delta, steadiest_order(epsilon, delta))

    def left(self, history: History, spend: Spend) -> int:
        """Return how many more releases like one of `spend` it pays for after `history`."""
        return self._filter(history).left(spend)

    def check(self, history: History, spend: Spend) -> None:
        """Raise BudgetSpent unless it pays for `spend` after `history`, which counts in full."""
        if not self._filter(history).accepts(spend):
            # An aggregator is told these words, and not what the owner allows.
            raise BudgetSpent(
                "lifetime_epsilon: the next release would pass what this data may spend over all "
                "runs"
            )

    def _filter(self, history: History) -> RenyiFilter:
        return RenyiFilter(self.epsilon, self.delta, self.order, history)
