"""Two entries of the register become one, as their data turned out to be of the same people.

The entry that stays has all names, bytes and sketches of the other, and names it as joined; nothing
of the other is changed or deleted. One write of one file does it, so a crash leaves both, or one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.known_data.sketch import merged
from tacit.privacy.accounting import History
from tacit_services.identity import data_register, dealt_ledgers, sketch_files
from tacit_services.identity.data_register import DataRecord, added


def unspent(root: Path, entry: DataRecord, others: tuple[DataRecord, ...]) -> DataRecord:
    """Return `entry` with others, from which nothing was spent, in it; not written yet.

    Raises PrivacyError while one of them is in use.
    """
    for other in others:
        _refuse_in_use(root, other)
        _take_sketches(root, entry, other)
        entry = _with(entry, other)
    return entry


def join(home: Path, first: str, second: str) -> DataRecord:
    """Make one entry of two that have these names; every edge starts from both spends, composed.

    A person who is in the data of both may have spent the most of either, so the composition of
    these two is an upper bound for everybody. Raises PrivacyError where there are no two, or they
    are in use, or count by other units.
    """
    root = home / "ledgers"
    try:
        with data_register.locked(root):
            survivor, absorbed = (_entry_of(root, name) for name in (first, second))
            if survivor.id == absorbed.id:
                raise PrivacyError(f"{first} and {second}: have one ledger already")
            if survivor.unit != absorbed.unit:
                raise PrivacyError(
                    f"{first} counts by {survivor.unit!r}, {second} by {absorbed.unit!r}: what was "
                    "charged for one unit says nothing of another"
                )
            for each in (survivor, absorbed):
                _refuse_in_use(root, each)
            _take_sketches(root, survivor, absorbed)
            joined = replace(_with(survivor, absorbed), number=survivor.number + 1, edges={})
            place = root / survivor.id / str(joined.number) / "joined.db"
            spent, order = _composition(root, survivor, absorbed)
            dealt_ledgers.begin(place, survivor.id, spent, order)
            joined = replace(joined, before=f"{joined.number}/joined.db")
            data_register.write(root / survivor.id, joined)
            return joined
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PrivacyError(f"ledgers {root}: {error}") from error


def _composition(root: Path, *entries: DataRecord) -> tuple[History, int | None]:
    """Return what a unit of all entries may have spent, and the order of its lifetime."""
    spent = [spend for entry in entries for spend in dealt_ledgers.most(root / entry.id, entry)]
    paths = [path for entry in entries for path in dealt_ledgers.all_of(root / entry.id, entry)]
    return tuple(spent), dealt_ledgers.order(paths)


def _entry_of(root: Path, name: str) -> DataRecord:
    if (entry := data_register.with_name(root, name)) is None:
        raise PrivacyError(f"{name}: no ledger in {root} has this name")
    return entry


def _with(entry: DataRecord, other: DataRecord) -> DataRecord:
    return replace(
        entry,
        names=added(entry.names, *other.names),
        digests=added(entry.digests, *other.digests),
        joined=added(entry.joined, other.id),
    )


def _take_sketches(root: Path, entry: DataRecord, other: DataRecord) -> None:
    """Let `entry` know the units of `other`; it may know them although they are not joined then."""
    for part, theirs in sketch_files.parts(root / other.id):
        ours = sketch_files.read(root / entry.id, part)
        if ours is None:
            sketch_files.write(root / entry.id, part, theirs)
        elif not set(theirs.files) <= set(ours.files):
            every = added(ours.files, *theirs.files)
            both = merged(ours.sketches, theirs.sketches)
            sketch_files.write(root / entry.id, part, sketch_files.PartSketches(every, both))


def _refuse_in_use(root: Path, entry: DataRecord) -> None:
    locks = (dealt_ledgers.DEALT, dealt_ledgers.RUN)
    dealt_ledgers.refuse_in_use(root / entry.id, entry.names[0], *locks)
