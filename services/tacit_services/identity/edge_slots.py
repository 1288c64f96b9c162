"""The slots of one data: the numbers under which the ledgers of its edges are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tacit.known_data.owned import Owned
from tacit.known_data.sketch import Sketches, shared_rows, shared_units
from tacit_services.identity import sketch_files
from tacit_services.identity.data_register import DataRecord


def slot_of(
    folder: Path, entry: DataRecord, owned: Owned, number: int, drawn: Sketches | None
) -> str:
    """Return the number of this edge's ledger: of the file with these bytes, or its own.

    Where the edge's own file before had none of these units and another edge's had: that one's.
    """
    if owned.dealing:
        return str(number)
    alike = [slot for slot, digests in entry.edges.items() if owned.digest in digests]
    if alike or drawn is None or sketch_files.read(folder, str(number)) is None:
        return next(iter(alike), str(number))
    slots = [slot for slot in _sharing(folder, drawn) if slot in entry.edges]
    if str(number) in slots:
        return str(number)
    return next(iter(slots), str(number))


def sketches(folder: Path, owned: Owned, slot: str, drawn: Sketches | None) -> Sketches | None:
    """Return the sketches of the data: `drawn`, or all that were stored for its part."""
    if drawn is not None:
        return drawn
    stored = sketch_files.read(folder, sketch_files.part_of(owned, slot))
    if stored is None:
        return None
    return stored.sketches


def mixed(folder: Path, owned: Owned, slot: str, drawn: Sketches | None) -> list[str]:
    """Return the other sites whose files had units that are in this site's."""
    if owned.dealing:
        ours = None
    else:
        ours = sketches(folder, owned, slot, drawn)
    if ours is None:
        return []
    return [part for part in _sharing(folder, ours) if part != slot]


def _sharing(folder: Path, drawn: Sketches) -> Iterator[str]:
    """Yield the parts of the data in `folder` that have units of these sketches."""
    for part, stored in sketch_files.parts(folder):
        if shared_units(stored.sketches, drawn).same or shared_rows(stored.sketches, drawn).same:
            yield part
