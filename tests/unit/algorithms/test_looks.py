"""Looks at judged-out rows in uninterrupted runs: who is asked, what is charged, and that no model moves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tacit_services.testbed import simulated_run
from tacit_services.testbed.simulated_run import Simulation

from tacit import datasets
from tacit.algorithms import registry
from tacit.algorithms.base.looks import summed
from tacit.algorithms.base.server import ServerRole
from tacit.datasets import Dataset
from tacit.datasets.held_out import UnitSplit, divided
from tacit.datasets.source import EdgePart
from tacit.judging.look_figures import figures
from tacit.models import evaluate
from tacit.privacy.ledger.simulated import SimulatedLedger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Releaser
from tacit.protocol.messages import (
    EVERYONE,
    Deadline,
    GlobalModel,
    Halt,
    Hello,
    Outgoing,
    Push,
    Update,
)
from tacit.simulation.client_server import received
from tests.helpers.nightly import nightly
from tests.helpers.run_files import MAPA, run_file

EDGES, UPDATES, LOOKS = 3, 30, 3
BASE: dict[str, Any] = {
    "run": {"updates": UPDATES},
    "edges": {"count": EDGES},
    "privacy": {"clip": 1.0, "batch": 64, "epsilon": 20.0},
    "evaluation": {"at": "edges", "looks": LOOKS, "epsilon": 20.0},
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "mapa": {"learning_rate": 2.0},
    "audp": {"smoothness": 1.0, "deviation": 1.0},
    "fedasync": {"learning_rate": 1.0},
    "fedbuff": {"learning_rate": 1.0, "buffer": 2},
    "fedavg": {"learning_rate": 1.0},
    "dp-pasgd": {"learning_rate": 1.0},
}


def simulation(name: str = "mapa", **more: Any) -> Simulation:
    algorithm = {"name": name} | ALGORITHMS[name]
    return Simulation(run_file(BASE, {"algorithm": algorithm}, **more).define(), None)


def trained(name: str = "mapa", **more: Any) -> Simulation:
    run = simulation(name, **more)
    run.simulator.run(lambda role: None)
    return run


def begun(run: Simulation) -> list[tuple[int, int, int]]:
    assert run.role.looks is not None
    return [(look.number, look.version, len(look.sums)) for look in run.role.looks.begun]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_edge_judges_each_look_once_and_is_charged_for_it_alone(name: str) -> None:
    run = trained(name)
    assert run.role.halt_reason == "all updates applied"
    assert run.role.version == UPDATES
    looks = begun(run)
    assert [number for number, _, _ in looks] == [1, 2, 3]
    assert looks[-1] == (LOOKS, UPDATES, EDGES)
    for role in run.simulator.edges.values():
        sides = {row.side: row.count for row in role.releaser.ledger.history()}
        answered = sum(role.edge in look.sums for look in run.role.looks.begun)  # type: ignore[union-attr]
        assert sides["held_out"] == answered
        assert "both" not in sides
    spent = run.role.edges["edge-0"].spent
    assert {row.side for row in spent} == {"training", "held_out"}


def test_an_answer_moves_no_model_and_counts_as_no_update() -> None:
    run = simulation()
    role = run.role
    before: dict[str, Any] = {}

    def watched(message: Any) -> list[Outgoing]:
        if isinstance(message, Update) and message.look:
            state = role.params, role.version, role.edges[message.edge].updates
            outgoing = type(role).on_message(role, message)
            assert state == (role.params, role.version, role.edges[message.edge].updates)
            before["looks"] = before.get("looks", 0) + 1
            return outgoing
        return type(role).on_message(role, message)

    role.on_message = watched  # type: ignore[method-assign]
    run.simulator.run(lambda role: None)
    assert before["looks"] == LOOKS * EDGES


def test_the_last_look_is_about_what_its_rows_say_without_noise() -> None:
    run = trained()
    looks = run.role.looks
    assert looks is not None
    judging = run.definition.judging
    assert judging is not None
    accuracy = figures(summed(judging, looks.begun[-1]))["accuracy"]
    parts = simulated_run.rows_by_edge(run.definition, None)
    judged = []
    for number, part in enumerate(parts):
        _, rows, _ = simulated_run._sides(run.definition, number, part)
        assert isinstance(rows, Dataset)
        judged.append(rows)
    every = replace(
        judged[0], x=torch.cat([h.x for h in judged]), y=torch.cat([h.y for h in judged])
    )
    exact, _ = evaluate(run.model, run.role.params, every)
    assert accuracy.low - 0.02 <= exact <= accuracy.high + 0.02
    assert accuracy.high - accuracy.low < 0.3


def test_a_role_that_is_restored_in_the_middle_of_a_look_ends_the_same() -> None:
    uninterrupted = simulation()
    restored: list[ServerRole] = []
    other = registry.server(uninterrupted.definition, uninterrupted.model)
    journal: list[Any] = []
    on_message = uninterrupted.role.on_message

    def kept(message: Any) -> list[Outgoing]:
        journal.append(
            replace(message, vector=message.vector.clone())
            if isinstance(message, Update)
            else message
        )
        return on_message(message)

    uninterrupted.role.on_message = kept  # type: ignore[method-assign]
    uninterrupted.simulator.run(lambda role: None)
    for place, message in enumerate(journal):
        other.on_message(message)
        if place % 7 == 3:
            tensors, values = other.state()
            again = registry.server(uninterrupted.definition, uninterrupted.model)
            again.restore(tensors, values)
            other = again
            restored.append(again)
    assert len(restored) > 3
    assert torch.equal(other.params, uninterrupted.role.params)
    assert other.looks is not None
    assert uninterrupted.role.looks is not None
    for mine, theirs in zip(other.looks.begun, uninterrupted.role.looks.begun, strict=True):
        assert (mine.number, mine.version) == (theirs.number, theirs.version)
        assert mine.sums.keys() == theirs.sums.keys()
        assert all(torch.equal(mine.sums[edge], theirs.sums[edge]) for edge in mine.sums)
    best, again_best = uninterrupted.role.looks.best(), other.looks.best()
    assert (best is None) == (again_best is None)
    if best is not None and again_best is not None:
        assert torch.equal(best[1], again_best[1])


def hello(edge: str, looked: int = 0) -> Hello:
    return Hello(edge, 8.0, 1e-5, "discrete_gaussian", 0.1, 0.1, 10.0, (), looked=looked)


def served(version: int) -> tuple[ServerRole, Any]:
    """Return a role at this version, to which two edges have said Hello, and its definition."""
    run = run_file(BASE, {"algorithm": {"name": "mapa", "learning_rate": 1.0}}).define()
    role = registry.server(run, run.build_model())
    for edge in ("edge-0", "edge-1"):
        role.on_message(hello(edge))
    zeros = torch.zeros_like(role.params)
    for _ in range(version):
        role.on_message(Update("edge-0", role.version, zeros, 1.0, ()))
    return role, run


def asked(outgoing: list[Outgoing]) -> list[tuple[str, int]]:
    return [(out.to, out.message.look) for out in outgoing if isinstance(out.message, GlobalModel)]


def test_an_edge_that_cannot_pay_says_so_and_goes_on_training() -> None:
    role, _ = served(10)
    assert asked(role.work_for("edge-1")) == [("edge-1", 1)]
    assert asked(role.on_message(hello("edge-1", looked=1))) == [("edge-1", 0)]
    assert asked(role.work_for("edge-1")) == [("edge-1", 0)]


def test_a_late_answer_counts_for_the_look_that_it_is_of() -> None:
    role, run = served(20)
    assert role.looks is not None
    assert role.looks.number == 2
    counts = torch.ones(role.looks.width)
    late = Update("edge-1", 10, counts, 1.0, (), look=1)
    assert role.screen(late) is None
    assert asked(role.on_message(late)) == [("edge-1", 2)]
    role.on_message(late)  # again: it counts once
    assert [len(look.sums) for look in role.looks.begun] == [1, 0]
    assert run.judging is not None


def test_what_is_no_answer_to_a_look_does_not_enter_the_journal() -> None:
    role, _ = served(10)
    assert role.looks is not None
    counts = torch.ones(role.looks.width)
    assert role.screen(Update("edge-1", 10, counts[1:], 1.0, (), look=1)) == "kind"
    assert role.screen(Update("edge-1", 10, counts, 1.0, (), look=2)) == "kind"
    assert role.screen(Update("edge-7", 10, counts, 1.0, (), look=1)) == "unknown"
    unjudged = run_file(MAPA, run={"updates": 5}, edges={"count": 2}).define()
    plain = registry.server(unjudged, unjudged.build_model())
    plain.on_message(hello("edge-0"))
    assert plain.screen(Update("edge-0", 0, counts, 1.0, (), look=1)) == "kind"


def test_at_the_end_all_are_asked_and_nobody_is_waited_for_for_ever() -> None:
    role, _ = served(UPDATES - 1)
    zeros = torch.zeros_like(role.params)
    outgoing = role.on_message(Update("edge-0", role.version, zeros, 1.0, ()))
    assert sorted(asked(outgoing)) == [("edge-0", LOOKS), ("edge-1", LOOKS)]
    assert not role.halted
    assert role.looks is not None
    timer = role.awaited()
    assert timer is not None
    late = role.on_message(Update("edge-1", role.version - 3, zeros, 1.0, ()))
    assert asked(late) == [("edge-1", LOOKS)]  # too late for the model; it may still judge
    assert role.version == UPDATES
    counts = torch.ones(role.looks.width)
    assert asked(role.on_message(Update("edge-0", UPDATES, counts, 1.0, (), look=LOOKS))) == []
    assert asked(role.work_for("edge-0")) == []
    assert not role.halted
    (end,) = role.on_message(Deadline(timer.number))
    assert (end.to, type(end.message)) == (EVERYONE, Halt)
    assert role.halt_reason == "all updates applied"


def test_an_edge_answers_a_look_once_and_its_budget_ends_them() -> None:
    run = simulation()
    edge = run.simulator.edges["edge-0"]
    params = run.model.init(1)

    def look(number: int) -> Any:
        model = GlobalModel(number, params, 1.0, run.definition.terms, look=number)
        (out,) = edge.on_message(model)
        return out.message

    assert isinstance(look(1), Push)
    assert isinstance(look(1), Hello)  # again: nothing is charged
    assert [type(look(number)) for number in (2, 3)] == [Push, Push]
    fourth = look(4)
    assert isinstance(fourth, Hello)
    assert fourth.looked == 4
    assert edge.releaser.ledger.charged().count == LOOKS


def test_an_edge_without_held_out_rows_refuses_a_look() -> None:
    run = run_file(MAPA, run={"updates": 5}).define()
    model = run.build_model()
    rows = datasets.load("digits", "train", None).take(torch.arange(300))
    releaser = Releaser(run.plans.plan(0, 300), SimulatedLedger(), Random(1))
    edge = registry.edge(run, "edge-0", rows, model, releaser)
    assert edge.on_message(GlobalModel(0, model.init(1), 1.0, run.terms, look=1)) == []
    assert edge.refusals == 1
    assert releaser.ledger.charged().count == 0


@pytest.mark.parametrize(("epsilon", "ends"), [(400.0, True), *nightly((0.5, False))])
def test_a_run_ends_early_only_where_its_looks_are_sure_that_nothing_is_gained(
    tmp_path: Path, epsilon: float, ends: bool
) -> None:
    looks = {"at": "edges", "looks": 20, "epsilon": epsilon, "every": 20, "held_out": 0.6}
    run = run_file(
        BASE,
        {"algorithm": {"name": "fedasync", "learning_rate": 1.0}},
        run={"updates": 400, "stop": "no better"},
        evaluation=looks,
    ).define()
    done = simulated_run.simulate(run, None, tmp_path, lambda run_status: None)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (done.role.version < 400) == ends
    if ends:
        assert summary["reason"].startswith("no better: the looks at held-out rows")
    assert summary["looks"]
    assert summary["judged"] == summary["looks"][-1]
    assert (tmp_path / "looks.json").is_file()


# -- the mutant that trains on a judged-out unit -----------------------------------------------------


def led(train_on_all: bool, loud: bool) -> float:
    """Return how far 30 pushes lead along a judged-out unit, which is in the data where `loud`.

    train_on_all: the mutant, which trains on rows that it holds out as well.
    """
    run = run_file(
        BASE,
        {"algorithm": {"name": "mapa", "learning_rate": 1.0}},
        privacy={"noise_multiplier": 1.0, "epsilon": 5000.0, "pushes": None, "batch": 150},
    ).define()
    assert run.judging is not None
    rows = datasets.load("digits", "train", None).take(torch.arange(400))
    canary = rows.take(torch.tensor([0]))
    x = torch.full_like(canary.x, 1.0)
    split = UnitSplit(b"simulated 1 0", run.judging.held_out)
    for pixel in range(64):  # until its hash is below the share
        x.view(-1)[pixel] = 0.5
        canary = replace(canary, x=x, y=torch.tensor([9]))
        if len(divided(canary, split)[1]):
            break
    quiet, judged = divided(rows, split)
    if loud:
        judged = replace(
            judged, x=torch.cat((judged.x, canary.x)), y=torch.cat((judged.y, canary.y)), ids=None
        )
    every = replace(
        quiet, x=torch.cat((quiet.x, judged.x)), y=torch.cat((quiet.y, judged.y)), ids=None
    )
    part = EdgePart(every if train_on_all else quiet, 500, judged)
    edge = simulated_run.edge(run, run.build_model(), 0, part)
    model = run.build_model()
    start = torch.zeros(model.size)
    total = torch.zeros(model.size)
    for version in range(30):
        (out,) = edge.on_message(GlobalModel(version, start, 1.0, run.terms))
        message = received(out.message)
        assert isinstance(message, Update)
        total += message.vector
    weights = total[: 64 * 10].view(10, 64)
    return float(-(weights[9] * x.view(-1)).sum())


def test_a_mutant_that_trains_on_a_held_out_unit_is_caught() -> None:
    honest = led(False, True) - led(False, False)
    mutant = led(True, True) - led(True, False)
    assert abs(honest) < 1.0
    assert mutant > 2.0
