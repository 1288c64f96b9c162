"""Whether a member takes part in what is offered: its policy's word, before its owner is asked.

The host is told the kind of a refusal, and nothing that depends on rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PolicyWord(Enum):
    """What a policy makes of an offer."""

    ACCEPT = "accept"
    ASK = "ask"
    REFUSE = "refuse"


class RefusalKind(Enum):
    """All that a host reads of a refusal."""

    POLICY = "policy"
    CODE = "code"
    COLUMNS = "column names"
    DECLINED = "declined"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class OfferVerdict:
    """A policy's word on an offer.

    kind: of a refusal, which the host reads; else None. reason: in one line, for the owner alone.
    unconfirmed: whether it is refused for the researcher's key, which the owner has not confirmed.
    """

    answer: PolicyWord
    kind: RefusalKind | None = None
    reason: str = ""
    unconfirmed: bool = False
