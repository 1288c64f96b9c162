"""An offer as its owner is to read it now: what stays, with what it costs and how it stands today.

    now = offer_now(state, home, offer, record)
    print_sections(now.sections, console)      # fits 80 columns
    now.costs                                  # what an answer must name

Guarantee: `costs` is another one where the figures of `sections` that an owner consents to are
others, or the researcher's key stands in another way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tacit import rounding
from tacit.shown import printable
from tacit_services.member.consent import Consent, KeyStanding
from tacit_services.member.cost_words import cost_rows, costs_digest, short_words
from tacit_services.member.current_costs import CurrentCosts
from tacit_services.member.look_record import LookRecord
from tacit_services.member.member_state import MemberState
from tacit_services.member.offer_standing import REFUSED, WAITS, OfferStanding
from tacit_services.member.run_spending import RunSpending
from tacit_services.member.screen_text import WHO, ScreenRow, ScreenSections
from tacit_services.offers.offer import Offer

COSTS, COST, NOW = "What it may cost", "What it has cost", "What now"  # titles
_OF_ITS_TIME = (COSTS, NOW)  # parts that a record of an earlier tacit may have
_KEYS = {
    KeyStanding.NEW: "New here. Ask them, by another way, whether this is their key.",
    KeyStanding.SEEN: "Seen: your policy has taken an offer with this name and key. Nobody has "
    "confirmed that the key is theirs.",
    KeyStanding.KNOWN: "Known: you have confirmed this key for this name.",
    KeyStanding.OTHER_KEY: "ANOTHER KEY than the one that you confirmed for this name. It may be "
    "somebody else. Nothing is accepted until you confirm the new key.",
}
_CONFIRMS = " Accepting confirms it."
_WITHDRAWAL = (
    "If you accept, you may withdraw at any time: nothing leaves from then on. What has left by "
    "then stays with the host for good, and what it has cost stays spent."
)
_WITHDRAW = _WITHDRAWAL.replace("If you accept, you", "You")
_AGAIN = "You may still accept it, as long as its run goes on."
_DECLINING = (
    "If you decline, nothing leaves, and you may accept it later, as long as its run goes on."
)


@dataclass(frozen=True, slots=True)
class OfferNow:
    """One offer, whole.

    costs: a SHA-256. short: what it may cost, in a line; "" where unknown. actions: what its owner
    can do about it.
    """

    standing: OfferStanding
    sections: ScreenSections
    costs: str
    short: str
    actions: tuple[str, ...]


def offer_now(state: MemberState, home: Path, offer: Offer, record: LookRecord) -> OfferNow:
    """Return an offer as it is now. home: the user's data folder, where the ledger is.

    Raises ConfigError, PrivacyError.
    """
    folder = state.folder / "runs" / offer.run
    consents = state.consents()
    standing = OfferStanding.of(folder, record, consents.to(offer))
    key = consents.standing(offer)
    costs = CurrentCosts(state, home)
    cost = costs.of(offer.run, record)
    parts: dict[str, tuple[ScreenRow, ...]] = {}
    for title, rows in record.sections:
        if title in _OF_ITS_TIME:
            continue
        parts[title] = rows
        if title == WHO:
            parts[title] = (*rows, *_who(key, standing, consents.earlier(offer)))
            parts[COST] = tuple(_has_cost(standing, costs.spent(record)))
            if cost is not None and record.terms is not None and standing.state is None:
                parts[COSTS] = tuple(cost_rows(cost, record.terms))
    parts[NOW] = tuple(_now(standing, record))
    short = short_words(cost) if cost is not None and cost.private else ""
    sections = tuple((title, rows) for title, rows in parts.items() if rows)
    actions = standing.actions
    if key is KeyStanding.OTHER_KEY:  # as another one was confirmed for this name meanwhile
        actions = tuple("confirm" if each == "accept" else each for each in actions)
    return OfferNow(standing, sections, costs_digest(cost, key.name), short, actions)


def _who(key: KeyStanding, standing: OfferStanding, earlier: Consent | None) -> Iterator[ScreenRow]:
    confirms = key in (KeyStanding.NEW, KeyStanding.SEEN) and "accept" in standing.actions
    yield "", _KEYS[key] + _CONFIRMS * confirms
    if standing.offered_at is not None:
        yield "offered", _moment(standing.offered_at)
    if earlier is not None:
        yield (
            "",
            f"Another offer of this run was {earlier.answer} on {earlier.at:%Y-%m-%d}. This one is "
            "not the same.",
        )


def _has_cost(standing: OfferStanding, spent: RunSpending | None) -> Iterator[ScreenRow]:
    """Yield what a run has cost, where its owner has ever taken part, or it is over."""
    if not standing.took_part and standing.state is None:
        return
    if spent is None or not spent.releases:
        yield "this run", "nothing: no update of yours has left"
        return
    yield (
        "this run",
        f"{spent.words()}, at δ {rounding.decimal(spent.delta)}, in {spent.releases:,} releases",
    )


def _now(standing: OfferStanding, record: LookRecord) -> Iterator[ScreenRow]:
    if standing.state is not None:
        ended = "" if standing.diary.ended is None else f" on {_moment(standing.diary.ended)}"
        yield "", f"Its run is over ({standing.state}){ended}. {_answered(standing)}"
    elif standing.answer == WAITS:
        yield "", _WITHDRAWAL
        yield "", _DECLINING
    elif standing.answer == REFUSED:
        yield "", f"This offer is refused: {printable(standing.reason)}"
        if record.kind:
            yield "", f"The host is told one word: {record.kind}."
    elif standing.answer == "accepted":
        yield "", f"{_answered(standing)} {_WITHDRAW}"
    else:
        yield "", f"{_answered(standing)} {_AGAIN}"


def _answered(standing: OfferStanding) -> str:
    """Return who answered an offer, how, and when."""
    if standing.answer == REFUSED:
        return f"This offer was refused: {printable(standing.reason)}. Nothing has left."
    if standing.answered is None:
        return "It was not answered; nothing has left."
    if standing.withdrawn is not None:
        return f"You withdrew on {_moment(standing.withdrawn)}; nothing has left since."
    who = "Your policy" if standing.by_policy else "You"
    nothing = "; nothing has left" if standing.answer == "declined" else ""
    return f"{who} {standing.answer} it on {_moment(standing.answered)}{nothing}."


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
