"""The budget that ledgers of own data have left, shown before a run costs anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit import rounding
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.config.definition import Definition
from tacit.errors import ConfigError, PolicyForbids, PrivacyError
from tacit.privacy.accounting import History, Spend, epsilon_pld
from tacit.privacy.accounting.history import UnitSide, of_purpose
from tacit.privacy.plan import Plan
from tacit_services.identity import own_ledgers
from tacit_services.identity.kinship import Apart, NotApart
from tacit_services.identity.own_ledgers import LedgerOrigin
from tacit_services.identity.public_files import overlaps
from tacit_services.settings import load_policy

_ALIKE = 0.1  # share of different rows that a test set may have in common without a word


@dataclass(frozen=True, slots=True)
class Left:
    """The budget left for one edge's data: ε spent at the run's δ, and releases still paid for.

    releases: None where the run has no guarantee, so no budget. origin: whether its ledger begins.
    unseen, tells, apart, rows_known: as `DataSpending`. asked: ε of questions alone; joint: of all
    that is spent and that the run may spend, 0 where it has no guarantee.
    """

    edge: str
    spent: float
    budget: float
    releases: int | None
    origin: LedgerOrigin
    unseen: int
    tells: bool
    apart: tuple[Apart | NotApart, ...]
    rows_known: bool
    asked: float = 0.0
    joint: float = 0.0


def held(definition: Definition[Any], home: Path) -> AbstractContextManager[list[LedgerOrigin]]:
    """Return the data of all edges, kept for this run, and how it was known before.

    Raises PrivacyError where another run has it.
    """
    every = (definition.source.owned(number) for number in range(definition.edges.count))
    return own_ledgers.held([owned for owned in every if owned is not None], home)


def forbidden(definition: Definition[Any], policy: Path | None) -> PolicyForbids | None:
    """Return why the owner's policy, if there is one, does not allow the run; None: it does.

    A vertical party reads no policy. Raises ConfigError where the policy is wrong.
    """
    if policy is None or definition.algorithm.worker == "party":
        return None
    owners = load_policy(policy)
    try:
        owners.check_questions(definition.question_kinds)
        owners.check_looks(definition.looks_plan)
        if definition.looks_plan is not None:
            owners.check_alone(definition.looks_plan)
        for plan in definition.plans.different():
            owners.check(plan, definition.algorithm.name, definition.model.name)
            owners.check_alone(plan)
    except PolicyForbids as error:
        return PolicyForbids(f"{policy}: {error}; the owner of the data may change it", error.key)
    return None


def register(definition: Definition[Any], home: Path) -> None:
    """Let the ledgers of all edges be there before one of them is charged. Raises as `left`."""
    for number in range(definition.edges.count):
        if owned := definition.source.owned(number):
            own_ledgers.place(owned, number, home)


def left(definition: Definition[Any], home: Path, only: int | None = None) -> list[Left]:
    """Return what is left to every edge of a run on own data; none of published data.

    only: the number of an edge, where the machine has no data of others. Writes nothing.
    Raises PrivacyError, ConfigError, DataError.
    """
    return [
        ledger
        for number in _numbers(definition, only)
        if (ledger := _of_edge(definition, number, home)) is not None
    ]


def _numbers(definition: Definition[Any], only: int | None) -> range:
    if only is None:
        return range(definition.edges.count)
    return range(only, only + 1)


def _of_parties(definition: Definition[Any]) -> bool:
    return bool(definition.algorithm.worker == "party")


def _of_edge(definition: Definition[Any], number: int, home: Path) -> Left | None:
    owned = definition.source.owned(number)
    if owned is None:
        return None
    plan = definition.plans.plan(number)
    standing = own_ledgers.standing(owned, number, home)
    spent = epsilon_pld(standing.history, plan.delta)
    # Questions come on top of the budget for training, each run of them with its own.
    counted = () if definition.ask is not None else of_purpose(standing.history, "training")
    if _of_parties(definition):
        releases = vertical(definition).plan(number).releases_left(standing.history)
    else:
        releases = plan.pushes_left(counted)
    origin = standing.origin
    unseen = standing.unseen
    tells = standing.tells
    edge = f"edge-{number}"
    apart = standing.apart
    rows_known = standing.rows_known
    known = Left(edge, spent, plan.epsilon, releases, origin, unseen, tells, apart, rows_known)
    questions = of_purpose(standing.history, "question")
    if definition.ask is not None or not questions or releases is None:
        return known
    to_come = _to_come(definition, plan, releases)
    return replace(
        known,
        asked=epsilon_pld(questions, plan.delta),
        joint=epsilon_pld((*standing.history, *to_come), plan.delta),
    )


def _to_come(definition: Definition[Any], plan: Plan, releases: int) -> History:
    """Return the most that a run may release: updates, and looks at the rows that it holds out."""
    judging = definition.judging
    side: UnitSide = "both" if judging is None else "training"
    update = Spend(plan.charged_rate, plan.noise_multiplier, releases, plan.mechanism, side=side)
    if judging is None:
        return (update,)
    looks = judging.plan()
    look = Spend(
        looks.charged_rate, looks.noise_multiplier, judging.looks, looks.mechanism, "judging",
        "held_out",
    )  # fmt: skip
    return (update, look)


def refused(definition: Definition[Any], home: Path, *, resume: bool) -> list[str]:
    """Refuse a run that cannot start, before the ledgers know its rows: that is for good.

    Returns the notes of `refuse_private_test`. Raises PrivacyError where no edge can pay for
    anything (unless a stopped run is resumed, which may have paid for all that it needs), and as
    `left` and `refuse_private_test`.
    """
    own_ledgers.prepare(home)
    ledgers = left(definition, home)
    if not resume and (why := trained_out(definition, ledgers, home)):
        raise PrivacyError(why)
    return refuse_private_test(
        definition, home, rows_known=all(ledger.rows_known for ledger in ledgers)
    )


def refuse_private_test(
    definition: Definition[Any], home: Path, *, rows_known: bool, only: int | None = None
) -> list[str]:
    """Return notes on a test set with people of the training data, or rows like theirs.

    rows_known: whether the ledgers know the training rows already, which are then not read again.
    only: as `left`. Raises ConfigError where it has private rows, DataError for a file that cannot
    be read.
    """
    if (test := definition.source.test_file()) is None:
        return []
    if rows_known:
        numbers = range(0)
    else:
        numbers = _numbers(definition, only)
    every = [definition.source.owned(number) for number in numbers]
    notes = []
    for overlap in overlaps(test, [owned for owned in every if owned is not None], home):
        if overlap.private:
            raise ConfigError(
                f"data.test={test.file!r}: about {overlap.share:.0%} of it are rows of "
                f"{overlap.of}; the test set is public, and of other people"
            )
        if overlap.people:
            notes.append(
                f"about {overlap.people:.0%} of the units ({test.unit}) of {test.file} are in "
                f"{overlap.of}, too: their rows in it are public, and the model is not tested on "
                "others"
            )
        elif overlap.share > _ALIKE:
            notes.append(
                f"about {overlap.share:.0%} of the different rows of {test.file} are in "
                f"{overlap.of}, too. Rows are so much alike that chance may do that: see that it "
                "is of other people"
            )
    return list(dict.fromkeys(notes))


def of_ledgers(ledgers: list[Left], home: Path) -> Iterator[str]:
    """Say whether ledgers begin or continue, each in one line."""
    begun = [ledger.edge for ledger in ledgers if ledger.origin.continues is None]
    if begun:
        if len(ledgers) == 1:
            which = "a new ledger begins"
        else:
            which = f"new ledgers begin ({_few(begun)})"
        unseen = max(ledger.unseen for ledger in ledgers)
        but = f", but {unseen} of tacit 0.2 know no rows until they are used again"
        if any(ledger.apart for ledger in ledgers):
            other = "other "
        else:
            other = ""
        yield f"{which}: no {other}data like this is known in {home}{but if unseen else ''}"
    for name in dict.fromkeys(ledger.origin.continues for ledger in ledgers):
        if name is not None:
            ours = [ledger for ledger in ledgers if ledger.origin.continues == name]
            how = dict.fromkeys(ledger.origin.by for ledger in ours)
            yield (
                f"the ledger of {name} continues, known by {' and '.join(how)}: "
                f"ε = {rounding.epsilon(max(ledger.spent for ledger in ours))} is spent"
            )
    yield from dict.fromkeys(str(apart) for ledger in ledgers for apart in ledger.apart)
    if any(not ledger.tells for ledger in ledgers):
        yield (
            "its rows are too few or too much alike for a changed copy to be known by them: let "
            "data.name stay as it is"
        )


def spent_before(most: Left, definition: Definition[Any]) -> str:
    """Return what an edge's data had spent, and what is left. Questions have an ε of their own."""
    spent = rounding.epsilon(most.spent)
    if definition.ask is not None:
        return (
            f"ε = {spent} was spent before at {most.edge}; these questions come on top, with "
            f"ε = {most.budget:g} of their own"
        )
    if most.asked:
        return (
            f"ε = {spent} was spent before at {most.edge}, by questions too "
            f"(ε = {rounding.epsilon(most.asked)}), which the run's budget of {most.budget:g} does "
            f"not count; {most.releases} releases are left to it"
        )
    return (
        f"ε = {spent} of {most.budget:g} was spent before at {most.edge}; {most.releases} releases "
        "are left to it"
    )


def _few(edges: list[str]) -> str:
    if len(edges) == 1:
        return edges[0]
    return f"{edges[0]} to {edges[-1]}"


def trained_out(definition: Definition[Any], ledgers: list[Left], home: Path) -> str | None:
    """Return why no run can start, and what would: None where an edge can pay for something."""
    # What parties have released once they send again, unpaid: only they know whether they can.
    if (
        not ledgers
        or _of_parties(definition)
        or any(
            ledger.releases is None or ledger.releases >= definition.traits.steps
            for ledger in ledgers
        )
    ):
        return None
    first = ledgers[0]
    return (
        f"ledgers {home / 'ledgers'}: ε = {rounding.epsilon(first.spent)} of {first.budget:g} is "
        f"spent; {first.releases} releases are left to {first.edge}, and no other edge has more to "
        f"spend: this data{_in_words(first.origin)} is trained out at this budget. Another run "
        "needs other data, or a larger privacy.epsilon, which whoever owns the data decides"
    )


def ends_early(definition: Definition[Any], ledgers: list[Left]) -> Iterator[str]:
    """Warn where ledgers that earlier runs have charged pay for fewer updates than the run asks."""
    left = [ledger.releases for ledger in ledgers if ledger.releases is not None]
    if (
        _of_parties(definition)
        or len(left) < definition.edges.count
        or not any(ledger.spent for ledger in ledgers)
    ):
        return
    traits = definition.traits
    updates = sum(releases // traits.steps for releases in left) // traits.uploads
    if updates < definition.run.updates:
        yield (
            f"run.updates={definition.run.updates}: earlier runs have spent so much of this data's "
            f"ε that its ledgers pay for {updates} updates; the run ends there"
        )


def _in_words(origin: LedgerOrigin) -> str:
    """Return by what the data was recognised, and what to say where it is of other people."""
    if origin.by == "":
        return ""
    if origin.by == "name":
        name = f"known by its name, {origin.continues}"
        return f" ({name}; if those are other people, give them another data.name)"
    others = f"; if those are other people, name {origin.continues} in data.apart_from"
    name_line = f"known by its {origin.by} as {origin.continues}"
    return f" ({name_line}{'' if origin.by == 'bytes' else others})"


def opening(
    definition: Definition[Any],
    ledgers: list[Left],
    home: Path,
    origins: list[LedgerOrigin],
    resume: bool,
) -> Iterator[str]:
    """Return what a user should know of `ledgers` before the run. origins: by `held`.

    Raises PrivacyError where no edge can pay for anything, unless a stopped run is resumed, which
    may have paid for all that it needs.
    """
    yield f"ledgers: in {home / 'ledgers'}, kept for good"
    before = [replace(ledger, origin=how) for ledger, how in zip(ledgers, origins, strict=True)]
    yield from of_ledgers(before, home)
    if not resume and (why := trained_out(definition, before, home)):
        raise PrivacyError(why)
    if any(ledger.spent for ledger in ledgers):
        yield spent_before(max(ledgers, key=lambda ledger: ledger.spent), definition)
    paid = [ledger.releases for ledger in ledgers if ledger.releases is not None]
    traits = definition.traits
    updates = definition.run.updates
    versions = sum(paid) // traits.steps // traits.uploads
    if len(paid) == len(ledgers) and versions < updates and not _of_parties(definition):
        yield f"they pay for {versions} of {updates} {traits.counted}; the run ends there"
