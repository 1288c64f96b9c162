"""Whether a member takes part in what is offered: its policy's word, before its owner is asked.

`judged` is a pure function of what the member has looked at. The host is told a `Kind`, and nothing
that depends on rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Answer(Enum):
    """What a policy makes of an offer."""

    ACCEPT = "accept"
    ASK = "ask"
    REFUSE = "refuse"


class Kind(Enum):
    """All that a host reads of a refusal."""

    POLICY = "policy"
    CODE = "code"
    COLUMNS = "column names"
    DECLINED = "declined"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A policy's word on an offer.

    kind: of a refusal, which the host reads; else None. reason: in one line, for the owner alone.
    """

    answer: Answer
    kind: Kind | None = None
    reason: str = ""


def judged(looked: object, policy: object) -> Verdict:
    """TEMPORARY."""
    trouble = getattr(looked, "trouble", None)
    if trouble is not None:
        return Verdict(Answer.REFUSE, trouble.kind, trouble.words)
    return Verdict(Answer.ACCEPT)
