"""A member's whole look at an offer that it has fetched: judged, and kept for its owner."""

from __future__ import annotations

from pathlib import Path

from tacit.privacy.policy import Policy
from tacit_services.display.progress import SlowSteps
from tacit_services.identity.ledger_loan import LifetimeBound
from tacit_services.member.judging import judged
from tacit_services.member.look_record import LookRecord
from tacit_services.member.looking import look, with_rows
from tacit_services.member.member_state import MemberState
from tacit_services.member.promises import promised
from tacit_services.member.run_here import site_of
from tacit_services.member.screen import Screen
from tacit_services.member.verdict import PolicyWord
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
        lifetime = bound.at(bound.order)
        others = promised(state, offer.run, data_home())
        looked = with_rows(looked, data_home(), SlowSteps(), lifetime, others, part)
        verdict = judged(looked, policy)
    screen = Screen(looked, verdict, consents.earlier(offer), policy.hours)
    record = LookRecord(
        offer.fingerprint,
        verdict.answer.value,
        "" if verdict.kind is None else verdict.kind.value,
        verdict.reason,
        screen.sections(),
        # A ledger of a part does not tell runs apart.
        None if looked.cost is None or part is not None else looked.cost.promise,
    )
    record.keep(folder)
    return record
