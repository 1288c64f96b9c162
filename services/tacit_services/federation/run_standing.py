"""How a run stands, in one word and a reason, as people are shown it.

A record says how far a run has come. Whom it waits for depends on the members that may still answer
and on those that are connected, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit_services.federation.members import MemberRoll
from tacit_services.federation.run_records import RunRecord, RunStage

_NAMED = 3  # members that a reason names; of more it says how many


@dataclass(frozen=True, slots=True)
class RunStanding:
    """A state of the closed list, and why; "" where nothing is to be added."""

    state: RunStage
    why: str


def standing(record: RunRecord, roll: MemberRoll) -> RunStanding:
    """Return how a run stands among these members."""
    if record.over:
        return RunStanding(record.state, record.why)
    asked = _names(record.unanswered(roll.asked), roll)
    if record.state == "training":
        return _of_training(record, asked, roll)
    if record.consenting:
        why = record.why or f"{len(record.consenting)} of {record.needed} members have consented"
        return RunStanding("waiting", f"{why}; no answer yet of {asked}" if asked else why)
    if asked:
        return RunStanding("offered", f"no answer yet of {asked}")
    if not roll.asked:
        return RunStanding("offered", "nobody is a member yet")
    return RunStanding("waiting", f"for a member to take part; {_gone(record, roll)}")


def _of_training(record: RunRecord, asked: str, roll: MemberRoll) -> RunStanding:
    if record.stopping:
        return RunStanding("training", f"ends: {record.stopping}")
    if not record.consenting:
        whom = f"for an answer of {asked}" if asked else "for a member to take part"
        return RunStanding("waiting", f"{whom}; {_gone(record, roll)}")
    if record.online == 0:
        names = _names(record.consenting, roll)
        return RunStanding("waiting", f"for {names}: none is connected")
    return RunStanding("training", "")


def _gone(record: RunRecord, roll: MemberRoll) -> str:
    """Return who takes no part, with the word for why."""
    if not record.refusing:
        return "nobody takes part"
    words = [f"{roll.name(member)} ({reason})" for member, reason in record.refusing]
    return f"who does not: {_joined(words)}"


def _names(members: Sequence[str], roll: MemberRoll) -> str:
    return _joined([roll.name(member) for member in members])


def _joined(words: Sequence[str]) -> str:
    if len(words) <= _NAMED:
        return ", ".join(words)
    return f"{', '.join(words[:_NAMED])} and {len(words) - _NAMED} more"
