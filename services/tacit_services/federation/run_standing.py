"""How a run stands, in one word and a reason, as people are shown it.

A record says how far a run has come. Whom it waits for depends on the members that may still answer
and on those that are connected, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit_services.federation.members import Roster
from tacit_services.federation.run_records import RunRecord, RunStage

_NAMED = 3  # members that a reason names; of more it says how many


@dataclass(frozen=True, slots=True)
class Standing:
    """A state of the closed list, and why; "" where nothing is to be added."""

    state: RunStage
    why: str


def standing(record: RunRecord, roster: Roster) -> Standing:
    """Return how a run stands among these members."""
    if record.over:
        return Standing(record.state, record.why)
    asked = _names(record.unanswered(roster.asked), roster)
    if record.state == "training":
        return _of_training(record, asked, roster)
    if record.consenting:
        why = record.why or f"{len(record.consenting)} of {record.needed} members have consented"
        return Standing("waiting", f"{why}; no answer yet of {asked}" if asked else why)
    if asked:
        return Standing("offered", f"no answer yet of {asked}")
    if not roster.asked:
        return Standing("offered", "nobody is a member yet")
    return Standing("waiting", f"for another member or answer: {_gone(record, roster)}")


def _of_training(record: RunRecord, asked: str, roster: Roster) -> Standing:
    if record.stopping:
        return Standing("training", f"ends: {record.stopping}")
    if not record.consenting:
        whom = f"for an answer of {asked}" if asked else "for another member or answer"
        return Standing("waiting", f"{whom}: {_gone(record, roster)}")
    if record.online == 0:
        names = _names(record.consenting, roster)
        return Standing("waiting", f"for {names}: none is connected")
    return Standing("training", "")


def _gone(record: RunRecord, roster: Roster) -> str:
    """Return who takes no part, with the word for why."""
    if not record.refusing:
        return "nobody takes part"
    words = [f"{roster.name(member)} ({reason})" for member, reason in record.refusing]
    return _joined(words)


def _names(members: Sequence[str], roster: Roster) -> str:
    return _joined([roster.name(member) for member in members])


def _joined(words: Sequence[str]) -> str:
    if len(words) <= _NAMED:
        return ", ".join(words)
    return f"{', '.join(words[:_NAMED])} and {len(words) - _NAMED} more"
