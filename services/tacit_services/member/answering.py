"""What an owner answers, from another process than the one that works: `tacit offers`, the page.

Consent is to an offer and to what it costs. Costs are counted anew when the answer comes. If they
are others than the owner was shown, nothing is accepted, and they are to be read again.
"""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, WireError
from tacit_services.member.consent import Consent, Consents, KeyStanding
from tacit_services.member.current_costs import CurrentCosts
from tacit_services.member.look_record import (
    LastShown,
    LookRecord,
    forget_look,
    note_shown,
    record_in,
    shown_in,
)
from tacit_services.member.member_state import MemberState
from tacit_services.member.offer_now import OfferNow, offer_now
from tacit_services.member.offer_standing import REFUSED, WAITS, OfferStanding
from tacit_services.member.run_spending import RunSpending
from tacit_services.offers.offer import OFFER, Offer

SECONDS = 30.0  # that the process which works may take to end a run's
_TICK = 0.1


class AnswerRefused(ConfigError):  # noqa: N818  (a verdict on an answer)
    """An owner's answer is not taken. words: why, for a page; the message names a command, too."""

    def __init__(self, words: str, command: str = "") -> None:
        super().__init__(f"{words}: `{command}`" if command else words)
        self.words = words


class CostsChanged(AnswerRefused):
    """An offer costs something else by now than its owner was shown."""


class OwnerAnswers:
    """The answers of a member's owner."""

    def __init__(self, state: MemberState, home: Path) -> None:
        """home: the user's data folder, where the ledger is."""
        self._state = state
        self._home = home

    def show(self, run: str) -> OfferNow:
        """Return an offer as it is now; it counts as shown. Raises ConfigError, PrivacyError."""
        record = self._record(run)
        now = offer_now(self._state, self._home, self._offer(run, record), record)
        note_shown(self._state.run(run), LastShown(record.fingerprint, now.costs))
        return now

    def accept(self, run: str) -> None:
        """Accept the offer that was shown last, if any was, at the costs that were shown.

        Raises AnswerRefused where another has come since, or its costs are others by now, and where
        it cannot be accepted. Raises ConfigError, PrivacyError.
        """
        record = self._record(run)
        offer = self._offer(run, record)
        self._check_state(run, record)
        if record.answer == "refuse":
            command = confirming(run) if record.unconfirmed else ""
            raise AnswerRefused(f"run {run}: {record.reason}; it cannot be accepted", command)
        with self._state.answering() as consents:
            self.enter(consents, offer, record)

    def enter(self, consents: Consents, offer: Offer, record: LookRecord) -> None:
        """Accept an offer in `consents`, which nobody else changes now. Raises as `accept`."""
        run = offer.run
        if record.promise is not None and record.terms is None:
            raise AnswerRefused(
                f"run {run}: an earlier tacit has looked at it, which kept no terms of its costs; "
                "it is looked at anew when this member starts"
            )
        last = shown_in(self._state.run(run))
        if last is not None:
            look = f"tacit offers show {run}"
            if last.fingerprint != record.fingerprint:
                raise AnswerRefused(
                    f"run {run}: another offer has come since you were shown one; look at it", look
                )
            if last.costs != offer_now(self._state, self._home, offer, record).costs:
                raise CostsChanged(
                    f"run {run}: what it may cost has changed since you were shown it; look again",
                    look,
                )
        consents.record(offer, "accepted")
        self._look_anew(offer)

    def confirm(self, run: str) -> tuple[str, str]:
        """Take the key of an offer as its researcher's, and let the offer be looked at anew.

        Returns their name and key. Raises AnswerRefused where it is confirmed already, and
        ConfigError.
        """
        offer = self._offer(run, self._record(run))
        name = offer.researcher.name
        with self._state.answering() as consents:
            if consents.standing(offer) is KeyStanding.KNOWN:
                raise AnswerRefused(f"run {run}: the key of {name!r} is confirmed already")
            consents.confirm(offer)
        forget_look(self._state.run(run))
        self._look_anew(offer)
        return name, offer.researcher.fingerprint

    def decline(self, run: str) -> None:
        """Decline an offer; an earlier consent to its run ends. Raises ConfigError."""
        record = self._record(run)
        offer = self._offer(run, record)
        self._check_state(run, record)
        with self._state.answering() as consents:
            consents.withdraw(run)
            consents.record(offer, "declined")

    def withdraw(self, run: str) -> bool:
        """Take a consent back; returns whether no process works on the run any more.

        Raises AnswerRefused where there is none.
        """
        with self._state.answering() as consents:
            taken = consents.withdraw(run)
        if not taken:
            raise AnswerRefused(f"run {run}: was not accepted, so there is nothing to withdraw")
        return has_ended(self._state, run)

    def _look_anew(self, confirmed: Offer) -> None:
        """Let offers be looked at anew that are refused for a key which is confirmed by now."""
        consents = self._state.consents()
        for folder, record in _records(self._state):
            if not record.unconfirmed or folder.name == confirmed.run:
                continue
            try:
                offer = self._offer(folder.name, record)
            except ConfigError:  # another one has come, which will be looked at
                continue
            if consents.to(offer) is None and consents.standing(offer) is KeyStanding.KNOWN:
                forget_look(folder)

    def _check_state(self, run: str, record: LookRecord) -> None:
        standing = OfferStanding.of(self._state.run(run), record, None)
        if standing.state is not None:
            raise AnswerRefused(f"run {run}: is over ({standing.state}), so there is no answer")

    def _record(self, run: str) -> LookRecord:
        record = record_in(self._state.folder / "runs" / run)
        if record is None:
            raise ConfigError(f"run {run!r}: no such offer has come; `tacit offers` lists them")
        return record

    def _offer(self, run: str, record: LookRecord) -> Offer:
        """Return the offer that was looked at. Raises ConfigError where it is another by now."""
        try:
            offer = Offer.parse((self._state.folder / "runs" / run / OFFER).read_bytes())
        except (OSError, WireError) as error:
            raise ConfigError(f"run {run}: {error}") from error
        if offer.fingerprint != record.fingerprint:
            raise AnswerRefused(f"run {run}: another offer has come meanwhile; look at it again")
        return offer


def standings(state: MemberState) -> list[OfferStanding]:
    """Return how every offer that has come stands here, those first that wait for the owner."""
    answers: dict[str, Consent] = {each.fingerprint: each for each in state.consents().all()}
    rows = [
        OfferStanding.of(folder, record, answers.get(record.fingerprint))
        for folder, record in _records(state)
    ]
    return sorted(rows, key=lambda row: (row.urgency, row.run))


def listed(state: MemberState, home: Path) -> list[dict[str, Any]]:
    """Return how every offer that has come stands here, and what its run has cost, for programs.

    home: the user's data folder, where the ledger is. Raises ConfigError, PrivacyError.
    """
    costs = CurrentCosts(state, home)
    rows = []
    for standing in standings(state):
        spent = standing.diary.spent
        record = record_in(state.folder / "runs" / standing.run)
        if spent is None and standing.took_part and record is not None:
            spent = costs.spent(record)
        rows.append(standing.document(spent))
    return rows


def confirming(run: str) -> str:
    """Return the command by which an owner confirms the key of an offer's researcher."""
    return f"tacit offers accept {run} --new-key"


def as_lines(rows: list[dict[str, Any]]) -> str:
    """Return the list as lines for a terminal."""
    if not rows:
        return "no offers have come"
    lines = []
    for row in rows:
        reason = f": {row['reason']}" if row["reason"] and row["answer"] == REFUSED else ""
        if "confirm" in row["actions"]:
            reason += f": `{confirming(row['run'])}`"
        lines.append(f"{row['run']:<24} {_standing(row)}{reason}")
    return "\n".join(lines)


def has_ended(state: MemberState, run: str) -> bool:
    """Return whether no process works on the run any more, waiting for it to end."""
    deadline = time.monotonic() + SECONDS
    pause = threading.Event()
    while state.works_on(run):
        if time.monotonic() > deadline:
            return False
        pause.wait(_TICK)
    return True


def _records(state: MemberState) -> list[tuple[Path, LookRecord]]:
    folders = sorted((state.folder / "runs").glob("*"))
    records = [(folder, record_in(folder)) for folder in folders]
    return [(folder, record) for folder, record in records if record is not None]


def _standing(row: dict[str, Any]) -> str:
    """Return how a run stands here: of one that is over, how it ended and what it has cost."""
    if row["answer"] == "withdrawn":
        over = f" ({row['state']} since)" if row["state"] is not None else ""
        return f"withdrawn{over}, {_cost(row)}"
    if row["state"] is None or row["answer"] not in ("accepted", WAITS):
        return str(row["answer"])
    if row["answer"] == WAITS:
        return f"{row['state']}, not answered"
    return f"{row['state']}, {_cost(row)}"


def _cost(row: dict[str, Any]) -> str:
    spent = row["spent"]
    if spent is None or not spent["releases"]:
        return "nothing spent"
    epsilon = math.inf if spent["epsilon"] is None else spent["epsilon"]
    return RunSpending(spent["releases"], epsilon, spent["delta"], spent["budget"]).words()
