"""How an offer stands at a member: who answered it, when, how its run ended, what can be done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit_services.member.consent import Consent
from tacit_services.member.look_record import LookRecord
from tacit_services.member.run_diary import RunDiary, diary_of
from tacit_services.member.run_spending import RunSpending
from tacit_services.transport.json_numbers import finite_or_none

WAITS, REFUSED = "waits for you", "refused"
_BY_POLICY = {"ask": WAITS, "refuse": REFUSED, "accept": "accepted"}


@dataclass(frozen=True, slots=True)
class OfferStanding:
    """One offer as it stands.

    answer: `waits for you`, `refused`, `accepted`, `declined` or `withdrawn`. reason: of a refusal,
    for the owner. offered_at, answered, withdrawn: times in seconds since 1970, or None.
    by_policy: whether the owner's policy gave the answer. state: how the run ended; None: it goes
    on. confirmable: whether it is refused for its researcher's key alone.
    """

    run: str
    fingerprint: str
    researcher: str
    answer: str
    reason: str
    offered_at: float | None
    answered: float | None
    by_policy: bool
    withdrawn: float | None
    confirmable: bool
    diary: RunDiary

    @classmethod
    def of(cls, folder: Path, record: LookRecord, consent: Consent | None) -> OfferStanding:
        """Return how the offer in a run's folder stands.

        consent: the owner's latest answer to it. Raises ConfigError.
        """
        if consent is None:
            answer = _BY_POLICY[record.answer]
        else:
            answer = consent.answer if consent.withdrawn is None else "withdrawn"
        withdrawn = None if consent is None else consent.withdrawn
        return cls(
            run=folder.name,
            fingerprint=record.fingerprint,
            researcher=record.researcher or ("" if consent is None else consent.researcher),
            answer=answer,
            reason=record.reason,
            offered_at=record.offered_at,
            answered=None if consent is None else consent.at.timestamp(),
            by_policy=consent is not None and consent.by_policy,
            withdrawn=None if withdrawn is None else withdrawn.timestamp(),
            confirmable=record.unconfirmed and answer == REFUSED,
            diary=diary_of(folder, record.fingerprint),
        )

    @property
    def state(self) -> str | None:
        """How the run ended; None: it goes on, as far as its host has told."""
        return self.diary.state

    @property
    def actions(self) -> tuple[str, ...]:
        """What its owner can do about it."""
        if self.state is not None:
            return ()
        if self.confirmable:
            return ("confirm",)
        return {
            WAITS: ("accept", "decline"),
            "accepted": ("withdraw",),
            "declined": ("accept",),
            "withdrawn": ("accept",),
        }.get(self.answer, ())

    @property
    def urgency(self) -> int:
        """How soon its owner should look at it, 0 first."""
        if self.state is not None:
            return 4
        if self.confirmable:
            return 1
        return {WAITS: 0, "accepted": 2}.get(self.answer, 3)

    @property
    def took_part(self) -> bool:
        """Whether this member has ever consented to it."""
        return self.answer in ("accepted", "withdrawn")

    def document(self, spent: RunSpending | None) -> dict[str, Any]:
        """Return it for programs, with what its run has spent."""
        diary = self.diary
        return {
            "run": self.run,
            "fingerprint": self.fingerprint,
            "researcher": self.researcher,
            "answer": self.answer,
            "reason": self.reason,
            "offered_at": self.offered_at,
            "answered": self.answered,
            "by_policy": self.by_policy,
            "withdrawn": self.withdrawn,
            "began": diary.began,
            "ended": diary.ended,
            "state": diary.state,
            "spent": None
            if spent is None
            else asdict(spent) | {"epsilon": finite_or_none(spent.epsilon)},
            "actions": list(self.actions),
        }
