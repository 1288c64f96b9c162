"""What a member finds out about an offer before its policy, and its owner, judge it.

    looked = look(offer, folder, site, standing)     # reads no row: headers only
    looked = with_rows(looked, home, slow)           # reads them as the run will

Nothing that is found is sent. What depends on rows is a `Trouble` of kind unavailable, whose words
are for the owner alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.config import RunFile
from tacit.config.asked_table import AskedTable
from tacit.config.definition import Definition
from tacit.config.own_arrays import ArraysData
from tacit.config.own_table import TableData, TableFiles
from tacit.config.site import Site
from tacit.datasets.own.table_file import names_in
from tacit.errors import OwnersError, TacitError
from tacit.models import Model
from tacit_services.display.progress import SlowSteps
from tacit_services.identity import own_ledgers
from tacit_services.identity.ledger_loan import UNBOUND, LifetimeBound
from tacit_services.member import published_part
from tacit_services.member.consent import KeyStanding
from tacit_services.member.cost_terms import CostTerms
from tacit_services.member.data_account import DataAccount
from tacit_services.member.run_cost import RunCost, run_cost
from tacit_services.member.run_promise import RunPromise
from tacit_services.member.unit_words import unit_words
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
    data, as it was at the look; None: not looked at yet. terms, promise: what that is counted of.
    notes: what the owner should know of the rows.
    """

    offer: Offer
    site: Site
    standing: KeyStanding
    run: RunFile | None = None
    definition: Definition[Any] | None = None
    model: Model | None = None
    columns: Columns | None = None
    cost: RunCost | None = None
    terms: CostTerms | None = None
    promise: RunPromise | None = None
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
    bound: LifetimeBound = UNBOUND,
    part: Path | None = None,
) -> Looked:
    """Return `looked` with every row read as the run will read it, and what it may cost the data.

    home: the user's folder, where ledgers are. bound: the owner's, on the data. part: where the
    ledger of a part of published data is. Charges nothing. Trouble with the rows is of kind
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
            terms, order = _terms(definition, number, home, bound, part)
        promise = _promise(definition, number)
        lifetime = bound.at(order)
    except OwnersError as error:
        return replace(looked, trouble=Trouble(RefusalKind.UNAVAILABLE, error.for_owner))
    except TacitError as error:
        return replace(looked, trouble=Trouble(RefusalKind.UNAVAILABLE, str(error)))
    cost = run_cost(promise, terms.spent, lifetime)
    return replace(looked, notes=tuple(notes), cost=cost, terms=terms, promise=promise)


def _terms(
    definition: Definition[Any], number: int, home: Path, bound: LifetimeBound, part: Path | None
) -> tuple[CostTerms, int]:
    """Return what a run's costs are counted of, and the order of the data's lifetime.

    Raises TacitError.
    """
    source = definition.source
    terms = CostTerms(unit_words(source.unit), definition.privacy.mechanism, bound=bound)
    owned = source.owned(number)
    if owned is not None:
        standing = own_ledgers.standing(owned, _EDGE, home)
        name = standing.origin.continues
        order = DataAccount.of((name,), home).order or bound.order
        return replace(terms, spent=standing.history, ledger=name), order
    spent = () if part is None else published_part.spent(part, number, source.name)
    return replace(terms, spent=spent, part=source.name), bound.order


def _promise(definition: Definition[Any], number: int) -> RunPromise | None:
    """Return the most that a run may release at worker `number`; None: it gives no guarantee."""
    plan = definition.plans.plan(number)
    releases = plan.pushes_left(())
    if releases is None:
        return None
    if not plan.passes:
        traits = definition.traits
        releases = min(releases, definition.run.updates * traits.uploads * traits.steps)
    looks = definition.looks_plan
    return RunPromise(
        plan.charged_rate,
        plan.noise_multiplier,
        plan.mechanism,
        releases,
        plan.epsilon,
        plan.delta,
        0 if definition.judging is None else definition.judging.looks,
        0.0 if looks is None else looks.noise_multiplier,
    )


def _needed(run: RunFile, data: TableFiles) -> list[str]:
    """Return the columns of a table that a run reads, and the unit's."""
    if isinstance(data, AskedTable):
        assert run.ask is not None
        return data.asked_columns(run.ask)
    assert isinstance(data, TableData)
    return list(dict.fromkeys([*data.columns, *([data.unit] if data.unit else [])]))


def _columns(run: RunFile, site: Site) -> Columns:
    """Return which columns of the member's file are read. Raises DataError."""
    data = run.data
    if isinstance(data, TableFiles):
        needed = _needed(run, data)
        names = names_in(site.data, data.form, needed)
        others = tuple(name for name in names if name not in needed)
        return Columns(tuple(needed), others, tuple(name for name in needed if name not in names))
    if isinstance(data, ArraysData) and site.reader is None:
        return Columns(tuple(name for name in (data.x, data.y, data.unit) if name is not None))
    return Columns(())
