"""What offers cost as things stand: of the ledger and the owner's answers, at every reading.

What was said of an offer when it came is not true any more once another one is accepted, works, or
is withdrawn.
"""

from __future__ import annotations

from pathlib import Path

from tacit.privacy.accounting import History
from tacit.privacy.accounting.history import beyond
from tacit_services.member import published_part
from tacit_services.member.cost_terms import CostTerms
from tacit_services.member.data_account import DataAccount
from tacit_services.member.look_record import LookRecord
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.promises import promised
from tacit_services.member.run_cost import RunCost, run_cost
from tacit_services.member.run_spending import RunSpending, spending


class CurrentCosts:
    """The costs of a member's offers."""

    def __init__(self, state: MemberState, home: Path) -> None:
        """home: the user's data folder, where the ledger is."""
        self._state = state
        self._home = home

    def of(self, run: str, record: LookRecord) -> RunCost | None:
        """Return what an offer may cost now; None: its rows have not been looked at.

        Nothing is charged. Raises ConfigError, PrivacyError.
        """
        terms = record.terms
        membership = self._state.membership()
        if terms is None or membership is None:
            return None
        if record.promise is None:
            return run_cost(None, ())
        if terms.part is not None:
            return run_cost(record.promise, self._of_part(terms.part, membership))
        account = self._account(record, membership)
        others = promised(self._state, run, self._home)
        come = account.runs.get(record.fingerprint, ())
        lifetime = account.lifetime(terms.bound)
        return run_cost(record.promise, _spent(account, terms), lifetime, others, come)

    def spent(self, record: LookRecord) -> RunSpending | None:
        """Return what an offer's run has spent; None: nothing tells. Raises PrivacyError."""
        membership = self._state.membership()
        promise = record.charged
        if membership is None or promise is None:
            return None
        history = self._account(record, membership).runs.get(record.fingerprint, ())
        return spending(history, promise.delta, promise.budget)

    def _account(self, record: LookRecord, membership: Membership) -> DataAccount:
        ledger = None if record.terms is None else record.terms.ledger
        return DataAccount.of((ledger, membership.dataset), self._home)

    def _of_part(self, part: str, membership: Membership) -> History:
        if membership.published is None:
            return ()
        return published_part.spent(Path(membership.published), membership.number, part)


def _spent(account: DataAccount, terms: CostTerms) -> History:
    """Return what the data has spent: no less than the ledger has, or than rows told at a look."""
    return (*account.whole, *beyond(account.whole, terms.spent))
