"""Which of the register's data some data is: by its name, its bytes, its people or its rows.

The ledger of a unit's data bounds what is released of the unit. So data that has units of an entry
has the entry's ledger, under every name. If it has units of two entries, and something was spent
from each, no ledger is right, and it is refused (`join` makes one of two).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.known_data.owned import Owned
from tacit.known_data.sketch import SharedRows, Sketches, shared_rows, shared_units
from tacit_services.identity import data_register, dealt_ledgers, sketch_files
from tacit_services.identity.data_register import DataRecord


@dataclass(frozen=True, slots=True)
class Kin:
    """The entry of some data; None where a ledger begins.

    by: how it is known. joins: entries from which nothing was spent, and whose data this is, too.
    """

    entry: DataRecord | None
    by: str = ""
    joins: tuple[DataRecord, ...] = ()

    @property
    def by_units(self) -> bool:
        """Whether it is known neither by its name nor by its bytes."""
        return self.by in ("people", "rows")


@dataclass(frozen=True, slots=True)
class Apart:
    """The name of data that has units of other data, whose owner says that they are others.

    by: people or rows. share: of the smaller of both files, about.
    """

    name: str
    by: str
    share: float

    def __str__(self) -> str:
        return (
            f"about {self.share:.0%} of the {self.by} (of the smaller data) are those of "
            f"{self.name}, which data.apart_from says are others: what they have spent is not "
            "counted here"
        )


@dataclass(frozen=True, slots=True)
class NotApart:
    """The name of a ledger that this data has already, though its owner says that it is of others.

    A run has charged it, or was about to, before the owner said so; nothing takes them apart.
    """

    name: str

    def __str__(self) -> str:
        return (
            f"data.apart_from is not in force for {self.name}: this data has that ledger already, "
            "so what it has spent is counted here. It holds only where it is said before the first "
            "run on the data; take the name out of data.apart_from"
        )


def find(root: Path, owned: Owned, drawn: Sketches | None) -> Kin:
    """Return whose data it is. drawn: its sketches, None where they say nothing new.

    Raises PrivacyError where it is of two ledgers that were charged.
    """
    entries = data_register.entries(root)
    first = _by_name_or_bytes(entries, owned)
    if drawn is None:
        return first
    others = [
        Kin(entry, by)
        for entry, by, _ in _alike(root, entries, drawn)
        if entry != first.entry and not _said_apart(entry, owned)
    ]
    if not others:
        return first
    every = [*([first] if first.entry else []), *others]
    spent = [kin for kin in every if dealt_ledgers.spent(root, kin.entry)]
    if len(spent) > 1:
        _refuse(owned, [kin.entry.names[0] for kin in spent if kin.entry])
    chosen = (spent or every)[0]
    joins = tuple(kin.entry for kin in every if kin.entry and kin is not chosen)
    return Kin(chosen.entry, chosen.by, joins)


def apart(root: Path, owned: Owned, sketches: Sketches | None) -> tuple[Apart | NotApart, ...]:
    """Return what has units of this data, and is of others as the owner says; its own entry, too.

    Raises PrivacyError where only a part of a joined entry is said to be.
    """
    if not owned.apart_from:
        return ()
    entries = data_register.entries(root)
    own_entry = _by_name_or_bytes(entries, owned).entry
    ours = () if own_entry is None else own_entry.names
    alike = () if sketches is None else _alike(root, entries, sketches)
    others = (
        Apart(entry.names[0], by, share)
        for entry, by, share in alike
        if entry != own_entry and _said_apart(entry, owned)
    )
    return (*(NotApart(name) for name in owned.apart_from if name in ours), *others)


def known(root: Path, drawn: Sketches) -> Iterator[tuple[DataRecord, SharedRows]]:
    """Yield every entry that has rows of these sketches, and which share of them."""
    for entry in data_register.entries(root):
        for _, stored in sketch_files.parts(root / entry.id):
            if (shared := shared_rows(stored.sketches, drawn)).same:
                yield entry, shared
                break


def _by_name_or_bytes(entries: list[DataRecord], owned: Owned) -> Kin:
    by_name = [entry for entry in entries if owned.name in entry.names]
    alike = [entry for entry in entries if owned.digest in entry.digests]
    if by_name and alike and by_name[0].id != alike[0].id:
        raise PrivacyError(
            f"data {owned.name}: has a ledger by its name, and another by its bytes, which are "
            f"those of {alike[0].names[0]}; with two the same people would have two budgets: "
            f'say data.name = "{alike[0].names[0]}"'
        )
    if by_name:
        return Kin(by_name[0], "name")
    if alike:
        return Kin(alike[0], "bytes")
    return Kin(None)


def _alike(
    root: Path, entries: list[DataRecord], drawn: Sketches
) -> Iterator[tuple[DataRecord, str, float]]:
    """Yield the entries that have units of these: known by people, else rows; and the share."""
    for entry in entries:
        stored = [part.sketches for _, part in sketch_files.parts(root / entry.id)]
        for by, compared in (("people", shared_units), ("rows", shared_rows)):
            shares = [
                shared.share for sketches in stored if (shared := compared(sketches, drawn)).same
            ]
            if shares:
                yield entry, by, max(shares)
                break


def _said_apart(entry: DataRecord, owned: Owned) -> bool:
    """Return whether the owner declares this entry to be of others.

    Any of its names does; a joined entry needs all.
    """
    missing = [name for name in entry.names if name not in owned.apart_from]
    if entry.joined and 0 < len(missing) < len(entry.names):
        raise PrivacyError(
            f"data {owned.name}: data.apart_from names a part of a ledger that was joined; if all "
            f"of its people are others, name {', '.join(missing)}, too, else none of them"
        )
    return len(missing) < len(entry.names)


def _refuse(owned: Owned, names: list[str]) -> None:
    first, other, *_ = sorted(names)
    raise PrivacyError(
        f"data {owned.name}: has people or rows of two ledgers, {first} and {other}, and whoever "
        f'is in both has spent both. `tacit ledger join "{first}" "{other}"` makes one of them, '
        "which has spent both; if the people of one are others though their ids or rows are alike, "
        "say its name in data.apart_from"
    )
