"""`tacit check`: what is known of a run before it costs anything."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tacit import rounding
from tacit.algorithms import AlgorithmSettings, registry
from tacit.algorithms.own.unloaded import Unloaded
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.config import RunFile
from tacit.config.algorithm_entries import is_own
from tacit.config.definition import Definition
from tacit.config.learnt import LearntSection
from tacit.config.party_columns import ColumnsData
from tacit.config.preflight import warnings
from tacit.datasets import EdgeRows, PrivateRows
from tacit.datasets.source import Source
from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.models.graph.frozen_module import FrozenModule
from tacit.models.objectives import objective_of
from tacit.models.own_network import OwnNetwork
from tacit.models.trusted_module import TrustedModule
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Plan, Releaser
from tacit.protocol.messages import GlobalModel
from tacit_services.display.progress import SlowSteps
from tacit_services.project import layer_times, row_trial
from tacit_services.settings import load_policy, policy_beside
from tacit_services.testbed import own_budget

_SHOWN_ROWS = 2000  # public random rows that a step is measured with
_TASKS = 3  # measured tasks, of which the quickest counts
_FAR = 2  # times what an edge has: data.rows beyond that is said
_TRIED_ROWS = 1000  # of all edges together, with an own module


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of a check.

    facts: (what, in words). warnings: why the run may not learn. refused: why `tacit run` will not
    start, if it will not.
    """

    facts: list[tuple[str, str]]
    warnings: list[str]
    refused: str | None


def check(
    run: RunFile, root: Path | None, home: Path, slow: SlowSteps, only: int | None = None
) -> CheckReport:
    """Look at data, model, budget, memory and time of `run`; charges nothing, writes nothing.

    slow: is told what is under way. only: the number of the edge whose data is looked at, at a site
    that has no other's. Raises ConfigError, DataError, PrivacyError for what would stop
    the run, but for a budget that is spent: the report names it.
    """
    torch.set_num_threads(1)  # as every edge of `tacit run`, and faster on single rows
    with slow.step("looking at the files"):
        definition = run.define()
        count = definition.plans.workers
        if only is not None and only >= count:
            raise ConfigError(f"--identity {only}: the run has edges 0 to {count - 1}")
        run.source.check(root, only)
    definition.metrics()
    model = definition.build_model()
    here = not isinstance(definition.algorithm, Unloaded)  # a site needs none of its code
    if here and is_own(definition.algorithm.name):
        registry.server(definition, model)  # it is tried
    plan = definition.plans.plan(0)
    began = time.perf_counter()
    edge_rows = _rows_of_edges(definition, model, root, slow, only)
    reading = time.perf_counter() - began
    with slow.step("looking at the columns"):
        remarks = definition.source.remarks(only, quoting=True)
        remarks += row_trial.remarks([edge.trial for edge in edge_rows if edge.trial is not None])
    with slow.step("reading the test set"):
        facts = [*_data(definition, root, edge_rows)]
    facts += [("model", f"{definition.model.name}, {model.size:,} parameters")]
    facts += _for_sites(definition)
    with slow.step("adding up what the ledgers have spent"):
        ledgers = own_budget.left(definition, home, only)
    facts += _learnt(definition, ledgers)
    facts += _budget(definition, plan, ledgers, home)
    if definition.algorithm.worker == "edge":
        with slow.step("timing an update"):
            facts += _cost(definition, model, plan, reading)
        if isinstance(model, FrozenModule | TrustedModule):
            row = model.random_batch(1, torch.Generator().manual_seed(1))[0]
            facts.append(("layers", f"of a row's time: {layer_times.words(model.own.module, row)}"))
    with slow.step("comparing the test set with private rows"):
        alike = own_budget.refuse_private_test(definition, home, rows_known=False, only=only)
    notes = [*run.notes, *remarks, *alike]
    # What is compared are the rows of all; a party's have no label.
    if only is None and definition.algorithm.worker != "party":
        notes += [*_absent(definition.source, edge_rows), *_unequal(definition, edge_rows)]
    notes += _far_from_rows(definition, [edge.count for edge in edge_rows])
    notes += [
        *_shared(definition, plan),
        *own_budget.ends_early(definition, ledgers),
        *warnings(definition, model.size),
    ]
    refused = own_budget.trained_out(definition, ledgers, home)
    policy = policy_beside(run.folder)
    if policy is not None:
        idle = load_policy(policy).idle_alone
        unused = f"; in a federation only: {', '.join(idle)}" if idle else ""
        facts.append(("policy", f"{policy.name}, beside the run file, is obeyed{unused}"))
        forbids = own_budget.forbidden(definition, policy)
        if forbids is not None:
            refused = f"{forbids}"
    return CheckReport(facts, notes, refused)


def notes_of_site(
    definition: Definition[Any], model: Model, root: Path | None, slow: SlowSteps, number: int
) -> list[str]:
    """Read every row of edge `number` as its run will, and return what their owner should know.

    Raises ConfigError, DataError for what would stop the run there.
    """
    rows = _rows_of_edges(definition, model, root, slow, number)
    with slow.step("looking at the columns"):
        notes = definition.source.remarks(number, quoting=True)
    notes += row_trial.remarks([edge.trial for edge in rows if edge.trial is not None])
    return [*notes, *_far_from_rows(definition, [edge.count for edge in rows], "--rows")]


@dataclass(frozen=True, slots=True)
class _EdgeRows:
    """An edge's rows: how many, or units of them, the classes that they have, and their trial."""

    count: int
    classes: frozenset[int]
    trial: row_trial.RowTrial | None


def _rows_of_edges(
    definition: Definition[Any], model: Model, root: Path | None, slow: SlowSteps, only: int | None
) -> list[_EdgeRows]:
    """Read every row of every edge, or of `only` one, as the run will read it.

    Where the model is an own module, some of them are tried with it.
    """
    edge_rows = []
    if isinstance(model, OwnNetwork) and definition.algorithm.worker != "party":
        own = model
    else:
        own = None
    if only is None:
        numbers = range(definition.edges.count)
    else:
        numbers = range(only, only + 1)
    with tempfile.TemporaryDirectory(prefix="tacit-check-") as folder:
        for number in numbers:
            with slow.step(f"reading the rows of edge {number + 1} of {definition.edges.count}"):
                read = definition.source.edge(number, root, Path(folder)).rows
                edge_rows.append(_examined(definition.source, read, own, len(numbers)))
    return edge_rows


def _data(
    definition: Definition[Any], root: Path | None, edge_rows: list[_EdgeRows]
) -> Iterator[tuple[str, str]]:
    source = definition.source
    counts = [edge.count for edge in edge_rows]
    if source.unit in ("row", "record"):
        unit = "rows"
    else:
        unit = f"units ({source.unit})"
    counted = f"{min(counts)} to {max(counts)} {unit} an edge"
    yield "data", f"{source.name}: {counted}, {definition.plans.rows} taken"
    test = source.test(root)
    if test is not None:
        words = f"{len(test)} rows"
    elif definition.judging is not None:
        words = "none: edges judge the model on units that they hold out"
    else:
        words = "none: nothing will say how good the model is"
    yield "test set", words


def _examined(source: Source, read: PrivateRows, own: OwnNetwork | None, edges: int) -> _EdgeRows:
    rows = read.for_edge(source.shape[1] or 1)
    classes = _classes_in(rows.y[:-1], source.target)
    if own is None:
        trial = None
    else:
        trial = row_trial.tried(own, rows, max(1, _TRIED_ROWS // edges))
    return _EdgeRows(rows.records, frozenset(classes), trial)


def _classes_in(y: torch.Tensor, target: Target) -> list[int]:
    """Return the classes, labels, or intervals with an event, that some of `y` (n,) have."""
    objective = objective_of(target)
    if target.kind == "classes":
        counts = torch.bincount(y).tolist()
    elif target.kind == "labels" and objective is not None:
        counts = objective.decoded(y).sum(0).tolist()
    elif target.kind == "event" and objective is not None:
        passed, happened = objective.decoded(y).long().unbind(-1)
        counts = torch.bincount(passed[happened > 0]).tolist()
    else:
        counts = []
    return [place for place, count in enumerate(counts) if count]


def _far_from_rows(
    definition: Definition[Any], counts: list[int], key: str = "data.rows"
) -> Iterator[str]:
    """Warn where edges have far fewer rows, or units, than the run file takes them to have.

    The batches are then as much smaller, and noise weighs as much more. For the owner's screen.
    key: where another number can be stated.
    """
    taken = definition.plans.own_rows or definition.plans.rows
    most = max(counts)
    if definition.algorithm.worker == "party" or most * _FAR >= taken:
        return
    number = round(most, 1 - len(str(most)))
    yield (
        f"{key} = {taken:,} is {taken / max(1, most):.0f} times what an edge has here: "
        "batches are as much smaller, and noise weighs as much more, so the model may learn "
        f"little; write a round number near it, as {key} = {max(1, number)}, which becomes "
        "public"
    )


def _absent(source: Source, edge_rows: list[_EdgeRows]) -> Iterator[str]:
    """Warn of what no edge has a row of: a class (an empty folder, another name), label, event."""
    if source.target.kind == "labels":
        what = "has label"
    elif source.target.kind == "event":
        what = "has the event in the interval of"
    elif source.target.kind == "classes":
        what = "is of class"
    else:
        return
    present = frozenset[int]().union(*(edge.classes for edge in edge_rows))
    names = [name for place, name in enumerate(source.target.shares) if place not in present]
    if names:
        yield f"no training row {what} {', '.join(names)}: the model cannot learn it"


def _unequal(definition: Definition[Any], edge_rows: list[_EdgeRows]) -> Iterator[str]:
    """Warn where the guard compares edges whose rows are seen to differ much."""
    counts = [edge.count for edge in edge_rows]
    unequal = max(counts) > 2 * min(counts) or len({edge.classes for edge in edge_rows}) > 1
    if definition.guard.agreement and unequal:
        yield (
            "guard.agreement compares edges, whose rows differ here in number or classes: a liar "
            "may then cost more than its rows (docs/attacks.md, edges in league); guard.sums holds"
        )


def _shared(definition: Definition[Any], plan: Plan) -> Iterator[str]:
    """Warn what a person risks who is at every edge; no edge's budget bounds that."""
    if definition.promise.composition != "together" or not plan.private:
        return
    count = definition.edges.count * (plan.pushes_left(()) or 0)
    spent = Spend(plan.sampling_rate, plan.noise_multiplier, count, plan.mechanism)
    yield (
        f'data.people="shared": each edge keeps to ε = {plan.epsilon:g}, but who is at all of '
        f"{definition.edges.count} risks {rounding.epsilon(epsilon_pld((spent,), plan.delta))}, "
        "which no edge can enforce; a smaller privacy.epsilon helps"
    )


def _learnt(
    definition: Definition[Any], ledgers: list[own_budget.Left]
) -> Iterator[tuple[str, str]]:
    """Tell what columns were learnt from, and what ledgers that paid for questions come to."""
    learnt: LearntSection | None = getattr(definition.data, "learnt", None)
    if learnt is not None:
        yield "learnt before", learnt.words
    for ledger in ledgers:
        if ledger.asked:
            yield (
                f"joint of {ledger.edge}",
                f"ε = {rounding.epsilon(ledger.asked)} of questions is in this ledger; with all "
                f"that this run may take it comes to ε = {rounding.epsilon(ledger.joint)}",
            )


def _budget(
    definition: Definition[Any], plan: Plan, ledgers: list[own_budget.Left], home: Path
) -> Iterator[tuple[str, str]]:
    judging = definition.judging
    if not plan.private:
        yield "privacy", f"none: privacy.mechanism={plan.mechanism}"
        return
    if isinstance(definition.data, ColumnsData):
        z = vertical(definition).plan(0).noise_multiplier
        yield (
            "privacy",
            f"ε = {definition.privacy.epsilon:g}, δ = {plan.delta:g} of a person's columns at all "
            f"{definition.edges.count} parties together, {plan.epsilon:.3g} at each; one release "
            f"of each person, z = {z:.3g}",
        )
    else:
        pushes = plan.pushes_left(()) or 0
        yield (
            "privacy",
            f"ε = {plan.epsilon:g}, δ = {plan.delta:g} for {pushes} releases an edge, "
            f"z = {plan.noise_multiplier:g}, q = {plan.sampling_rate:.4g}",
        )
    if judging is not None:
        yield (
            "judging",
            f"ε = {judging.epsilon:g} for {judging.looks} looks at {100 * judging.held_out:g} % of "
            f"the units, z = {judging.plan().noise_multiplier:g}; the larger ε counts, not the sum",
        )
    if ledgers:
        yield "ledger", "; ".join(own_budget.of_ledgers(ledgers, home))
    for ledger in ledgers:
        yield (
            f"ledger of {ledger.edge}",
            f"ε = {rounding.epsilon(ledger.spent)} spent, {ledger.releases} releases left",
        )


def _for_sites(definition: Definition[Any]) -> Iterator[tuple[str, str]]:
    """Tell what a run file must state for sites that have none of an own algorithm's code."""
    section = definition.algorithm
    if isinstance(section, Unloaded):
        yield "algorithm", f"{section.name}, whose code is not here"
        return
    if not isinstance(section, AlgorithmSettings) or not is_own(section.name):
        return
    task = section.task()
    privacy = definition.privacy
    keys = [f"algorithm.edge = {task.toml()}", f"privacy.clip = {privacy.constant_clip:g}"]
    if privacy.noise_multiplier is None:
        keys.append(f"privacy.pushes = {privacy.pushes}")
    yield "algorithm", f"{section.name}, code {section.code}"
    yield "sites", f"need none of that code where the run file states {', '.join(keys)}"


def _cost(
    definition: Definition[Any], model: Model, plan: Plan, reading: float
) -> Iterator[tuple[str, str]]:
    seconds = _seconds_of_a_task(definition, model, plan)
    cores = min(os.cpu_count() or 1, definition.edges.count)
    updates = definition.run.updates * definition.traits.uploads
    yield (
        "time",
        f"about {math.ceil(seconds * updates / cores)} s of computing on {cores} processors "
        f"({1000 * seconds:.1f} ms an update), after about {math.ceil(reading / cores)} s of "
        "reading rows; starting the processes and sending messages come on top",
    )
    if (peak := _peak()) is not None:
        yield "memory", f"about {peak:.0f} MiB for each of {definition.edges.count} edges"


def _peak() -> float | None:
    """Return the most MiB that this process has had; None: the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _seconds_of_a_task(definition: Definition[Any], model: Model, plan: Plan) -> float:
    """Return the quickest of a few tasks on public random rows, with a ledger in memory."""
    count = min(_SHOWN_ROWS, plan.most_rows)
    x, y = model.random_batch(count + 1, torch.Generator().manual_seed(1))
    releaser = Releaser(plan, Ledger(":memory:", "check"), Random())
    role = registry.edge(definition, "edge-0", EdgeRows(x, y), model, releaser)
    seconds = []
    for _ in range(_TASKS):
        began = time.perf_counter()
        role.on_message(GlobalModel(0, model.init(1), definition.privacy.constant_clip))
        seconds.append(time.perf_counter() - began)
    return min(seconds)
