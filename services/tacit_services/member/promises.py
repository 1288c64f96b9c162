"""What runs that an owner has accepted may still spend, and have not yet."""

from __future__ import annotations

from pathlib import Path

from tacit.privacy.accounting import History
from tacit_services.member import run_spending
from tacit_services.member.look_record import record_in
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_diary import diary_of


def promised(state: MemberState, but: str | None, home: Path) -> dict[str, History]:
    """Return what each accepted run but one may still release, where it is not over.

    That is its updates, and its looks at rows that it holds out: each of its side of the rows.

    home: the user's data folder, where the ledger is. Raises ConfigError, PrivacyError.
    """
    membership = state.membership()
    held = [consent for consent in state.consents().all() if consent.holds and consent.run != but]
    if membership is None or not held:
        return {}
    spent = run_spending.histories(membership.dataset, home)
    promises = {}
    for consent in held:
        folder = state.folder / "runs" / consent.run
        record = record_in(folder)
        over = diary_of(folder, consent.fingerprint).state is not None
        if record is None or record.fingerprint != consent.fingerprint or over:
            continue
        come = spent.get(consent.fingerprint, ())
        left = () if record.charged is None else record.charged.due(come)
        if left:
            promises[consent.run] = left
    return promises
