"""What an owner answers, from another process than the one that works: `tacit offers`."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, WireError
from tacit_services.member.consent import Consent, KeyStanding
from tacit_services.member.look_record import (
    LookRecord,
    forget_look,
    note_shown,
    record_in,
    shown_in,
)
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_diary import diary_of
from tacit_services.member.run_spending import RunSpending
from tacit_services.offers.offer import OFFER, Offer
from tacit_services.transport.json_numbers import finite_or_none as finite

SECONDS = 30.0  # that the process which works may take to end a run's
_TICK = 0.1


def listed(state: MemberState) -> list[dict[str, Any]]:
    """Return every offer that has come, and how it stands here."""
    answers = {consent.fingerprint: consent for consent in state.consents().all()}
    rows = []
    for folder in sorted((state.folder / "runs").glob("*")):
        record = record_in(folder)
        if record is None:
            continue
        consent = answers.get(record.fingerprint)
        rows.append(
            {
                "run": folder.name,
                "fingerprint": record.fingerprint,
                "answer": _word(record, consent),
                "reason": record.reason,
            }
            | _diary(folder, record)
        )
    return rows


def as_lines(rows: list[dict[str, Any]]) -> str:
    """Return the list as lines for a terminal."""
    if not rows:
        return "no offers have come"
    lines = []
    for row in rows:
        reason = f": {row['reason']}" if row["reason"] and row["answer"] == "refused" else ""
        lines.append(f"{row['run']:<24} {_standing(row)}{reason}")
    return "\n".join(lines)


def _shown(state: MemberState, run: str, new_key: bool) -> str:
    record = _record(state, run)
    note_shown(state.run(run), record)
    return record.screen


def _accepted(state: MemberState, run: str, new_key: bool) -> str:
    record = _record(state, run)
    if shown_in(state.run(run)) not in (None, record.fingerprint):
        raise ConfigError(
            f"run {run}: another offer has come since you were shown one; look at it: "
            f"`tacit offers show {run}`"
        )
    offer = _offer(state, run, record)
    if new_key:
        return _confirmed(state, offer)
    if record.answer == "refuse":
        raise ConfigError(f"run {run}: {record.reason}; it cannot be accepted")
    with state.answering() as consents:
        consents.record(offer, "accepted")
    return f"run {run}: accepted; `tacit offers withdraw {run}` takes it back at any time"


def _confirmed(state: MemberState, offer: Offer) -> str:
    """Take the key of an offer as its researcher's, and let the offer be looked at anew."""
    researcher = offer.researcher
    with state.answering() as consents:
        if consents.standing(offer) is KeyStanding.KNOWN:
            raise ConfigError(f"--new-key: the key of {researcher.name!r} is confirmed already")
        consents.confirm(offer)
    forget_look(state.run(offer.run))
    return (
        f"run {offer.run}: {researcher.name!r} is known by the key {researcher.fingerprint} now; "
        "the offer is looked at anew, and waits for your policy's answer, or yours"
    )


def _declined(state: MemberState, run: str, new_key: bool) -> str:
    offer = _offer(state, run, _record(state, run))
    with state.answering() as consents:
        consents.withdraw(run)
        consents.record(offer, "declined")
    return f"run {run}: declined"


def _withdrawn(state: MemberState, run: str, new_key: bool) -> str:
    with state.answering() as consents:
        taken = consents.withdraw(run)
    if not taken:
        raise ConfigError(f"run {run}: was not accepted, so there is nothing to withdraw")
    if not has_ended(state, run):
        return (
            f"run {run}: withdrawn; the process that works on it has not ended yet, and nothing "
            "more is begun"
        )
    return f"run {run}: withdrawn; nothing leaves from now on. What was released stays released"


ACTIONS: dict[str, Callable[[MemberState, str, bool], str]] = {
    "show": _shown,
    "accept": _accepted,
    "decline": _declined,
    "withdraw": _withdrawn,
}


def has_ended(state: MemberState, run: str) -> bool:
    """Return whether no process works on the run any more, waiting for it to end."""
    deadline = time.monotonic() + SECONDS
    pause = threading.Event()
    while state.works_on(run):
        if time.monotonic() > deadline:
            return False
        pause.wait(_TICK)
    return True


def _word(record: LookRecord, consent: Consent | None) -> str:
    if consent is not None:
        return "withdrawn" if consent.withdrawn is not None else consent.answer
    return {"ask": "waits for you", "refuse": "refused", "accept": "accepted"}[record.answer]


def _diary(folder: Path, record: LookRecord) -> dict[str, Any]:
    """Return what a member has done in a run: times, how it ended, and what it has spent."""
    diary = diary_of(folder, record.fingerprint)
    spent = diary.spent
    return {
        "began": diary.began,
        "ended": diary.ended,
        "state": diary.state,
        "spent": None if spent is None else asdict(spent) | {"epsilon": finite(spent.epsilon)},
    }


def _standing(row: dict[str, Any]) -> str:
    """Return how a run stands here: of one that is over, how it ended and what it has cost."""
    if row["state"] is None or row["answer"] not in ("accepted", "waits for you"):
        return str(row["answer"])
    if row["answer"] == "waits for you":
        return f"{row['state']}, not answered"
    if row["spent"] is None:
        return f"{row['state']}, nothing spent"
    spent = row["spent"]
    epsilon = math.inf if spent["epsilon"] is None else spent["epsilon"]
    words = RunSpending(spent["releases"], epsilon, spent["delta"], spent["budget"]).words()
    return f"{row['state']}, {words}"


def _record(state: MemberState, run: str) -> LookRecord:
    record = record_in(state.folder / "runs" / run)
    if record is None:
        raise ConfigError(f"run {run!r}: no such offer has come; `tacit offers` lists them")
    return record


def _offer(state: MemberState, run: str, record: LookRecord) -> Offer:
    """Return the offer that was looked at. Raises ConfigError where the file is another by now."""
    try:
        offer = Offer.parse((state.folder / "runs" / run / OFFER).read_bytes())
    except (OSError, WireError) as error:
        raise ConfigError(f"run {run}: {error}") from error
    if offer.fingerprint != record.fingerprint:
        raise ConfigError(f"run {run}: another offer has come meanwhile; look at it again")
    return offer
