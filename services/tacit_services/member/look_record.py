"""How an offer was looked at, on disk, for the owner who answers later.

runs/RUN/look.json   {"format": 1, "fingerprint", "answer", "kind", "reason", "sections", "promise"}
runs/RUN/shown       the fingerprint of the offer whose screen the owner has seen last
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit_services.disk import files, json_record
from tacit_services.member.run_promise import RunPromise
from tacit_services.member.screen_text import ScreenSections, text_of

FORMAT = 1
_FILE = "look.json"
_SHOWN = "shown"


@dataclass(frozen=True, slots=True)
class LookRecord:
    """What came of a look at an offer.

    answer: of the policy: accept, ask or refuse. kind: of a refusal, which the host reads. reason:
    for the owner alone. sections: what the owner was, or is to be, shown. promise: the most that
    the run may release; None: not known, or without a guarantee.
    """

    fingerprint: str
    answer: str
    kind: str
    reason: str
    sections: ScreenSections
    promise: RunPromise | None = None

    @property
    def screen(self) -> str:
        """The sections as text for a terminal."""
        return text_of(self.sections)

    def keep(self, folder: Path) -> None:
        """Write it into the run's folder, durably. Raises OSError."""
        json_record.write(folder / _FILE, FORMAT, asdict(self))


def record_in(folder: Path) -> LookRecord | None:
    """Return the record in a run's folder; None: it was not looked at. Raises ConfigError."""
    return json_record.read(folder / _FILE, FORMAT, _record)


def _record(content: dict[str, Any]) -> LookRecord:
    promise = content.pop("promise", None)
    sections = tuple(
        (title, tuple((label, words) for label, words in rows))
        for title, rows in content.pop("sections")
    )
    return LookRecord(
        **content, sections=sections, promise=None if promise is None else RunPromise(**promise)
    )


def note_shown(folder: Path, record: LookRecord) -> None:
    """Note that the owner is shown the record's screen now. Raises OSError."""
    files.write(folder / _SHOWN, record.fingerprint.encode("ascii"), files.SECRET)


def shown_in(folder: Path) -> str | None:
    """Return the fingerprint of what the owner was shown last; None: nothing. Raises OSError."""
    try:
        return (folder / _SHOWN).read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return None


def forget_look(folder: Path) -> None:
    """Let the offer in a run's folder be looked at anew. Raises OSError."""
    (folder / _FILE).unlink(missing_ok=True)
