"""A member's whole look at an offer that it has fetched: judged, and kept for its owner."""

from __future__ import annotations

import time
from pathlib import Path

from tacit.privacy.policy import Policy
from tacit.shown import printable
from tacit_services.display.progress import SlowSteps
from tacit_services.identity.ledger_loan import LifetimeBound
from tacit_services.member.judging import judged
from tacit_services.member.look_record import LookRecord
from tacit_services.member.looking import Looked, look, with_rows
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_here import site_of
from tacit_services.member.screen import Screen
from tacit_services.member.verdict import OfferVerdict, PolicyWord
from tacit_services.offers.offer import Offer
from tacit_services.offers.submission import FILES
from tacit_services.settings import data_home


def looked_at(state: MemberState, offer: Offer, policy: Policy, part: Path | None) -> LookRecord:
    """Return, and keep in the run's folder, what comes of a look at an offer by `policy`.

    part: where the ledger of a part of published data is; None: the member has rows of its own.
    Raises ConfigError, PrivacyError, OSError.
    """
    folder = state.run(offer.run)
    consents = state.consents()
    looked = look(offer, folder / FILES, site_of(state), consents.standing(offer))
    verdict = judged(looked, policy)
    if verdict.answer is not PolicyWord.REFUSE:
        bound = LifetimeBound(policy.lifetime_epsilon, policy.lifetime_delta)
        looked = with_rows(looked, data_home(), SlowSteps(), bound, part)
        verdict = judged(looked, policy)
    record = record_of(looked, verdict, policy.hours, time.time())
    record.keep(folder)
    return record


def record_of(
    looked: Looked, verdict: OfferVerdict, hours: str | None = None, offered_at: float | None = None
) -> LookRecord:
    """Return what is kept of a look.

    hours: of the owner's policy. offered_at: when the offer came, in seconds since 1970.
    """
    return LookRecord(
        looked.offer.fingerprint,
        verdict.answer.value,
        "" if verdict.kind is None else verdict.kind.value,
        verdict.reason,
        Screen(looked, hours).sections(),
        looked.promise,
        looked.terms,
        printable(looked.offer.researcher.name),
        offered_at,
        verdict.unconfirmed,
    )
