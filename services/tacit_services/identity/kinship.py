"""Which of the register's data some data is: by its name, its bytes, its people or its rows.

What is released of a unit is bounded by the ledger that its data has. So data that has units of an
entry has the entry's ledger, whatever it is called; where it has units of two entries from each of
which something was spent, no ledger is right, and it is refused (`join` makes one of two).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tacit.datasets.sketch import Shared, Sketches, shared_rows, shared_units
from tacit.datasets.source import Owned
from tacit.errors import PrivacyError
from tacit_services.identity import data_register, dealt_ledgers, sketch_files
from tacit_services.identity.data_register import Entry


@dataclass(frozen=True, slots=True)
class Kin:
    """The entry of some data; None where a ledger begins.

    by: how it is known. joins: entries from which nothing was spent, and whose data this is, too.
    """

    entry: Entry | None
    by: str = ""
    joins: tuple[Entry, ...] = ()

    @property
    def by_units(self) -> bool:
        """Whether it is known neither by its name nor by its bytes."""
        return self.by in ("people", "rows")


def find(root: Path, owned: Owned, drawn: Sketches | None) -> Kin:
    """Return whose data it is. drawn: its sketches, None where they say nothing new.

    Raises PrivacyError where it is of two ledgers that were charged.
    """
    entries = data_register.entries(root)
    first = _found(entries, owned)
    if drawn is None:
        return first
    others = [
        Kin(entry, by)
        for entry in entries
        if entry != first.entry and not set(entry.names) & set(owned.apart_from)
        for by in _known_by(root / entry.id, drawn)
    ]
    if not others:
        return first
    every = [*([first] if first.entry else []), *others]
    spent = [one for one in every if dealt_ledgers.spent(root, one.entry)]
    if len(spent) > 1:
        _refuse(owned, [one.entry.names[0] for one in spent if one.entry])
    kept = (spent or every)[0]
    joins = tuple(one.entry for one in every if one.entry and one is not kept)
    return Kin(kept.entry, kept.by, joins)


def known(root: Path, drawn: Sketches) -> Iterator[tuple[Entry, Shared]]:
    """Yield every entry that has rows of these sketches, and which share of them."""
    for entry in data_register.entries(root):
        for _, kept in sketch_files.parts(root / entry.id):
            if (shared := shared_rows(kept.sketches, drawn)).same:
                yield entry, shared
                break


def slots(folder: Path, drawn: Sketches) -> Iterator[str]:
    """Yield the parts of the data in `folder` that have units of these sketches."""
    for part, kept in sketch_files.parts(folder):
        if shared_units(kept.sketches, drawn).same or shared_rows(kept.sketches, drawn).same:
            yield part


def _found(entries: list[Entry], owned: Owned) -> Kin:
    named = [entry for entry in entries if owned.name in entry.names]
    alike = [entry for entry in entries if owned.digest in entry.digests]
    if named and alike and named[0].id != alike[0].id:
        raise PrivacyError(
            f"data {owned.name}: has a ledger by its name, and another by its bytes, which are "
            f"those of {alike[0].names[0]}; with two the same people would have two budgets: "
            f'say data.name = "{alike[0].names[0]}"'
        )
    if named:
        return Kin(named[0], "name")
    return Kin(alike[0], "bytes") if alike else Kin(None)


def _known_by(folder: Path, drawn: Sketches) -> list[str]:
    """How the data in `folder` is known to be this: its people, else its rows, else nothing."""
    kept = [one.sketches for _, one in sketch_files.parts(folder)]
    if any(shared_units(one, drawn).same for one in kept):
        return ["people"]
    return ["rows"] if any(shared_rows(one, drawn).same for one in kept) else []


def _refuse(owned: Owned, names: list[str]) -> None:
    one, other, *_ = sorted(names)
    raise PrivacyError(
        f"data {owned.name}: has people or rows of two ledgers, {one} and {other}, and whoever is "
        f'in both has spent both. `tacit ledger join "{one}" "{other}"` makes one of them, which '
        "has spent both; if the people of one are others though their ids or rows are alike, say "
        "its name in data.apart_from"
    )
