"""The budget that ledgers of own data have left, shown before a run costs anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.config.definition import Definition
from tacit.errors import PrivacyError
from tacit.privacy.accounting import epsilon_pld
from tacit.rounding import up_to
from tacit_services.identity import own_ledgers


@dataclass(frozen=True, slots=True)
class Left:
    """The budget left for one edge's data: ε spent at the run's δ, and releases still paid for.

    None: the run has no guarantee, so no budget.
    """

    edge: str
    spent: float
    budget: float
    releases: int | None


def held(run: Definition[Any], home: Path) -> AbstractContextManager[None]:
    """The data of all edges, kept for this run. Raises PrivacyError where another run has it."""
    every = (run.source.owned(number) for number in range(run.workers))
    return own_ledgers.held([one for one in every if one is not None], home)


def register(run: Definition[Any], home: Path) -> None:
    """Let the ledgers of all edges be there before one of them is charged. Raises as `left`."""
    for number in range(run.workers):
        if owned := run.source.owned(number):
            own_ledgers.place(owned, number, home)


def left(run: Definition[Any], home: Path) -> list[Left]:
    """Return what is left to every edge of a run on own data; none of published data.

    Writes nothing. Raises PrivacyError, ConfigError, DataError.
    """
    return [
        one for number in range(run.workers) if (one := _of_edge(run, number, home)) is not None
    ]


def _of_edge(run: Definition[Any], number: int, home: Path) -> Left | None:
    owned = run.source.owned(number)
    if owned is None:
        return None
    plan, history = run.plans.plan(number), own_ledgers.history(owned, number, home)
    spent = epsilon_pld(history, plan.delta)
    return Left(f"edge-{number}", spent, plan.epsilon, plan.pushes_left(history))


def trained_out(run: Definition[Any], ledgers: list[Left], home: Path) -> str | None:
    """Why no run can start, and what would: None where an edge can pay for something."""
    if not ledgers or any(
        one.releases is None or one.releases >= run.traits.steps for one in ledgers
    ):
        return None
    first = ledgers[0]
    return (
        f"ledgers {home / 'ledgers'}: ε = {up_to(first.spent, 3)} of {first.budget:g} is spent; "
        f"{first.releases} releases are left to {first.edge}, and no other edge has more to "
        "spend: this data is trained out at this budget. Another run needs other data, or a larger "
        "privacy.epsilon, which whoever owns the data decides"
    )


def said(run: Definition[Any], ledgers: list[Left], home: Path, resume: bool) -> Iterator[str]:
    """Return what a user should know of `ledgers` before the run.

    Raises PrivacyError where no edge can pay for anything, unless a stopped run is resumed, which
    may have paid for all that it needs.
    """
    yield f"ledgers: in {home / 'ledgers'}, kept for good"
    if not resume and (refused := trained_out(run, ledgers, home)):
        raise PrivacyError(refused)
    if any(one.spent for one in ledgers):
        most = max(ledgers, key=lambda one: one.spent)
        yield (
            f"ε = {up_to(most.spent, 3)} of {most.budget:g} was spent before at {most.edge}; "
            f"{most.releases} releases are left to it"
        )
    known = [one.releases for one in ledgers if one.releases is not None]
    versions = sum(known) // run.traits.steps // run.traits.uploads
    if len(known) == len(ledgers) and versions < run.horizon:
        yield f"they pay for {versions} of {run.horizon} {run.traits.counted}; the run ends there"
