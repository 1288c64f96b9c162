"""Whether a file that is to be public has rows of private data that lies, or is known, here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tacit.known_data.owned import Owned
from tacit.known_data.sketch import shared_rows, shared_units
from tacit_services.identity import kinship, sketch_files


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of a public file with private data.

    of: the data. share: of the smaller file's rows, about. private: whether they are more than
    chance gives to rows that are alike. people: share of people, 0 where no column names them.
    """

    of: str
    share: float
    private: bool
    people: float


def overlaps(public: Owned, private: Iterable[Owned], home: Path) -> list[Overlap]:
    """Compare a public file with the private data of a run, and with all that has a ledger here.

    Writes nothing. Raises ConfigError, DataError, PrivacyError.
    """
    root = home / "ledgers"
    key = sketch_files.key_of(root) or b""
    ours = sketch_files.drawn(public, key)
    if ours is None:
        return []
    matches = []
    for owned in dict.fromkeys(private):
        if (theirs := sketch_files.drawn(owned, key)) is not None:
            rows = shared_rows(ours, theirs)
            people = shared_units(ours, theirs)
            if people.same:
                of_people = people.share
            else:
                of_people = 0.0
            matches.append(Overlap(owned.file, rows.alike, rows.same, of_people))
    for entry, rows in kinship.known(root, ours):
        matches.append(Overlap(f"{entry.names[0]}, which a ledger knows", rows.alike, True, 0.0))
    return matches
