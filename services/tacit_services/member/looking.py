"""What a member finds out about an offer before its policy, and its owner, judge it.

    looked = look(offer, folder, site, standing)     # reads no row: headers only
    looked = with_rows(looked, home, slow)           # reads them as the run will

Nothing that is found is sent. What depends on rows is a `Trouble` of kind unavailable, whose words
are for the owner alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.config import RunFile
from tacit.config.definition import Definition
from tacit.config.own_arrays import ArraysData
from tacit.config.own_table import TableData
from tacit.config.site import Site
from tacit.datasets import Source
from tacit.datasets.own.table_file import names_in
from tacit.errors import OwnersError, TacitError
from tacit.models import Model
from tacit.privacy.accounting import History, Lifetime, Spend
from tacit_services.display.progress import SlowSteps
from tacit_services.identity import own_ledgers
from tacit_services.member import published_part
from tacit_services.member.consent import KeyStanding
from tacit_services.member.run_cost import RunCost, run_cost
from tacit_services.member.verdict import RefusalKind
from tacit_services.offers.offer import Offer
from tacit_services.offers.offer_reading import CodeNeeded, definition_at_member
from tacit_services.project import preview

_EDGE = 0  # a member's data is one edge with a file of its own, in every federation


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of the owner's file: those that the offer reads, others, and those that are lacking.

    others: None where nobody can say what else there is, as of pictures.
    """

    read: tuple[str, ...]
    others: tuple[str, ...] | None = None
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a member cannot take part. words: for the owner alone."""

    kind: RefusalKind
    words: str


@dataclass(frozen=True, slots=True)
class Looked:
    """An offer and what a member knows of it.

    run, definition, model, columns: None where trouble came first. cost: what it may cost the
    data; None: not looked at yet. notes: what the owner should know of the rows.
    """

    offer: Offer
    site: Site
    standing: KeyStanding
    run: RunFile | None = None
    definition: Definition[Any] | None = None
    model: Model | None = None
    columns: Columns | None = None
    cost: RunCost | None = None
    notes: tuple[str, ...] = ()
    trouble: Trouble | None = None


def look(offer: Offer, folder: Path, site: Site, standing: KeyStanding) -> Looked:
    """Return what an offer is, with its files in `folder`, and which columns it reads.

    Executes nothing and reads no row. An error becomes the result's `trouble`.
    """
    looked = Looked(offer, site, standing)
    try:
        run = definition_at_member(offer, folder, site)
        definition = run.define()
        looked = replace(looked, run=run, definition=definition, model=definition.build_model())
        columns = _columns(run, site)
    except CodeNeeded as error:
        return replace(looked, trouble=Trouble(RefusalKind.CODE, str(error)))
    except TacitError as error:
        return replace(looked, trouble=Trouble(RefusalKind.UNAVAILABLE, str(error)))
    if columns.lacking:
        words = f"{site.data.name}: has no column {', '.join(map(repr, columns.lacking[:5]))}"
        return replace(looked, columns=columns, trouble=Trouble(RefusalKind.COLUMNS, words))
    return replace(looked, columns=columns)


def with_rows(
    looked: Looked,
    home: Path,
    slow: SlowSteps,
    lifetime: Lifetime | None = None,
    promised: Mapping[str, Spend] | None = None,
    part: Path | None = None,
) -> Looked:
    """Return `looked` with every row read as the run will read it, and what it may cost the data.

    home: the user's folder, where ledgers are. lifetime: the owner's bound on the data. promised:
    what other runs may still spend of it, by run. part: where the ledger of a part of published
    data is. Charges nothing. Trouble with the rows is of kind
    unavailable.
    """
    definition = looked.definition
    if definition is None or looked.model is None or looked.trouble is not None:
        return looked
    number = looked.site.number
    root = looked.site.data
    try:
        notes = preview.notes_of_site(definition, looked.model, root, slow, number)
        with slow.step("adding up what the ledger has spent"):
            history = _history(definition.source, number, home, part)
    except OwnersError as error:
        return replace(looked, trouble=Trouble(RefusalKind.UNAVAILABLE, error.for_owner))
    except TacitError as error:
        return replace(looked, trouble=Trouble(RefusalKind.UNAVAILABLE, str(error)))
    cost = run_cost(definition, number, history, lifetime, promised)
    return replace(looked, notes=tuple(notes), cost=cost)


def _history(source: Source, number: int, home: Path, part: Path | None) -> History:
    """Return what a member's data has spent. Raises TacitError."""
    owned = source.owned(number)
    if owned is not None:
        return own_ledgers.standing(owned, _EDGE, home).history
    return () if part is None else published_part.spent(part, number, source.name)


def _columns(run: RunFile, site: Site) -> Columns:
    """Return which columns of the member's file are read. Raises DataError."""
    data = run.data
    if isinstance(data, TableData):
        needed = list(data.columns)
        if data.unit is not None and data.unit not in needed:
            needed.append(data.unit)
        names = names_in(site.data, data.form, needed)
        others = tuple(name for name in names if name not in needed)
        return Columns(tuple(needed), others, tuple(name for name in needed if name not in names))
    if isinstance(data, ArraysData) and site.reader is None:
        return Columns(tuple(name for name in (data.x, data.y, data.unit) if name is not None))
    return Columns(())
