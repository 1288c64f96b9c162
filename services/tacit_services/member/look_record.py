"""How an offer was looked at, on disk, for the owner who answers later.

runs/RUN/look.json   {"format": 1} and the fields of `LookRecord`
runs/RUN/shown       what the owner has seen last: an offer's fingerprint, the SHA-256 of its costs

No figure of what an offer costs is kept, as it is true for a moment only: what it is counted of is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tacit.privacy.accounting import Spend
from tacit_services.disk import files, json_record
from tacit_services.identity.ledger_loan import LifetimeBound
from tacit_services.member.cost_terms import CostTerms
from tacit_services.member.run_promise import RunPromise
from tacit_services.member.screen_text import ScreenSections

FORMAT = 1
_FILE = "look.json"
_SHOWN = "shown"


@dataclass(frozen=True, slots=True)
class LookRecord:
    """What came of a look at an offer.

    answer: of the policy: accept, ask or refuse. kind: of a refusal, which the host reads. reason:
    for the owner alone. sections: what the owner is shown of it that stays as it is. promise: the
    most that the run may release, or None if it is not known, or gives no guarantee. terms: what
    its costs are counted of, or None if no rows were looked at. researcher: who asks. offered_at:
    when it was looked at first, in seconds since 1970. unconfirmed: whether it is refused for its
    researcher's key alone, which the owner has not confirmed.
    """

    fingerprint: str
    answer: str
    kind: str
    reason: str
    sections: ScreenSections
    promise: RunPromise | None = None
    terms: CostTerms | None = None
    researcher: str = ""
    offered_at: float | None = None
    unconfirmed: bool = False

    @property
    def charged(self) -> RunPromise | None:
        """The promise, where the ledger tells what the run has spent: one of a part does not."""
        return None if self.terms is not None and self.terms.part is not None else self.promise

    def keep(self, folder: Path) -> None:
        """Write it into the run's folder, durably.

        The same offer has come when it was looked at first. Raises OSError, ConfigError.
        """
        before = record_in(folder)
        offered_at = self.offered_at
        if before is not None and before.fingerprint == self.fingerprint:
            offered_at = before.offered_at or offered_at
        json_record.write(folder / _FILE, FORMAT, asdict(replace(self, offered_at=offered_at)))


def record_in(folder: Path) -> LookRecord | None:
    """Return the record in a run's folder; None: it was not looked at. Raises ConfigError."""
    return json_record.read(folder / _FILE, FORMAT, _record)


def _record(content: dict[str, Any]) -> LookRecord:
    promise = content.pop("promise", None)
    terms = content.pop("terms", None)
    sections = tuple(
        (title, tuple((label, words) for label, words in rows))
        for title, rows in content.pop("sections")
    )
    return LookRecord(
        **content,
        sections=sections,
        promise=None if promise is None else RunPromise(**promise),
        terms=None if terms is None else _terms(terms),
    )


def _terms(content: dict[str, Any]) -> CostTerms:
    spent = tuple(Spend(**row) for row in content.pop("spent"))
    return CostTerms(**content | {"bound": LifetimeBound(**content["bound"])}, spent=spent)


@dataclass(frozen=True, slots=True)
class LastShown:
    """What the owner was shown last of a run: an offer, by its fingerprint, and its costs.

    costs: a SHA-256 of them, or "".
    """

    fingerprint: str
    costs: str


def note_shown(folder: Path, last: LastShown) -> None:
    """Note what the owner is shown of a run now. Raises OSError."""
    content = f"{last.fingerprint} {last.costs}"
    files.write(folder / _SHOWN, content.encode("ascii"), files.SECRET)


def shown_in(folder: Path) -> LastShown | None:
    """Return what the owner was shown last; None: nothing. Raises OSError."""
    try:
        content = (folder / _SHOWN).read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return None
    fingerprint, _, costs = content.partition(" ")
    return LastShown(fingerprint, costs)


def forget_look(folder: Path) -> None:
    """Let the offer in a run's folder be looked at anew. Raises OSError."""
    (folder / _FILE).unlink(missing_ok=True)
