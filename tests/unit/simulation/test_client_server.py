"""Virtual time by hand, determinism, stragglers, deadlines, sampled staleness.

And what a simulation reports of ε.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tacit_services.testbed.simulated_run import Simulation

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.local_steps import LocalStepsEdge
from tacit.config import RunFile
from tacit.errors import ConfigError, PrivacyError, TacitError
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.simulated import SimulatedLedger
from tacit.protocol.messages import Deadline, GlobalModel, Hello, Push, Retired, Update
from tacit.simulation import batched_edges
from tacit.simulation.client_server import ALL_LATE, NOBODY, Simulator
from tests.helpers.run_files import Layer, run_file, toml
from tests.system.cli.test_main import tacit

RUN: Layer = {"privacy": {"batch": 8, "clip": 1.0, "noise_multiplier": 1.0}}
ASGD = 'algorithm = {name = "asgd", smoothness = 1.0, deviation = 1.0}\n'
FEDASYNC = 'algorithm = {name = "fedasync", steps_min = 2, max_staleness = 16}\n'
PASGD = 'algorithm = {name = "dp-pasgd", tau = 2, quorum = 0.5, deadline_s = 9.0}\n'


def parsed(
    more: str,
    edges: int = 2,
    updates: int = 6,
    seed: int = 1,
    mechanism: str = "none",
    epsilon: float = 50.0,
) -> RunFile:
    return run_file(
        RUN,
        more,
        run={"updates": updates, "seed": seed},
        edges={"count": edges},
        privacy={"mechanism": mechanism, "epsilon": epsilon},
    )


def simulated(run: RunFile) -> Simulator:
    simulator = Simulation(run.define(), None).simulator
    assert isinstance(simulator, Simulator)
    simulator.run()
    return simulator


class TestClock:
    def test_one_edge_by_hand(self) -> None:
        world = "network = {compute.seconds = 2.0, downlink.seconds = 0.25, uplink.seconds = 0.5}"
        simulator = simulated(parsed(ASGD + world, edges=1, updates=3))
        assert simulator.now == 0.5 + 3 * (0.25 + 2.0 + 0.5)
        assert simulator.server.version == 3
        assert simulator.server.staleness == {0: 3}

    def test_edges_that_take_turns_are_all_as_stale_as_there_are_others(self) -> None:
        simulator = simulated(parsed(ASGD + 'network.start = "cyclic"', edges=4, updates=20))
        assert simulator.server.staleness == {0: 1, 1: 1, 2: 1, 3: 17}
        assert simulator.now == 1.0 + 19 / 4

    def test_an_edge_three_times_as_slow_sends_a_third_as_much(self) -> None:
        simulator = simulated(parsed(ASGD + "edges.slowdown = [1, 3]", updates=40))
        assert [record.updates for record in simulator.server.edges.values()] == [30, 10]
        assert simulator.now == 30.0

    def test_a_task_of_more_steps_takes_longer(self) -> None:
        assert simulated(parsed(FEDASYNC, edges=1, updates=5)).now == 10.0

    def test_no_more_models_are_held_than_edges_are_at_work(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counts: list[int] = []
        fold = Simulator.fold

        def counting(simulator: Simulator, message: Hello | Update | Retired | Deadline) -> None:
            counts.append(
                sum(isinstance(content, GlobalModel) for _, _, _, content in simulator._events)
            )
            fold(simulator, message)

        monkeypatch.setattr(Simulator, "fold", counting)
        simulated(parsed(ASGD + 'network.compute.model = "exponential"', edges=5, updates=200))
        assert max(counts) == 4  # of the others, while one answers


class TestRounds:
    def test_a_round_lasts_as_long_as_its_slowest(self) -> None:
        assert (
            simulated(parsed(PASGD + "edges.slowdown = [1, 1, 3]", edges=3, updates=4)).now
            == 4 * 2 * 3
        )

    def test_a_straggler_costs_each_round_its_deadline_until_it_is_left_out(self) -> None:
        simulator = simulated(parsed(PASGD + "network.stragglers = 1", edges=3, updates=5))
        # Round 1 waits 9 s for edge-2, which answers at 20 s; rounds of 2 s without it, until it
        # has been heard. Rounds end at 9, 11, 13, 15, 17.
        assert simulator.now == 17.0
        assert simulator.server.edges["edge-2"].updates == 0

    def test_an_edge_that_leaves_for_good_is_waited_for_once(self) -> None:
        simulator = simulated(
            parsed(PASGD + "network.away = [{edge = 1, leaves = 3}]", edges=3, updates=6)
        )
        assert simulator.now == 2 + 9 + 4 * 2
        assert [record.updates for record in simulator.server.edges.values()] == [6, 1, 6]

    def test_an_edge_that_returns_takes_part_again(self) -> None:
        away = "network.away = [{edge = 1, leaves = 3, returns = 12.5}]"
        simulator = simulated(parsed(PASGD + away, edges=3, updates=6))
        assert simulator.server.edges["edge-1"].updates > 1


class TestEnds:
    @pytest.mark.parametrize("more", [ASGD, FEDASYNC, PASGD])
    def test_a_world_that_empties_ends_the_run(self, more: str) -> None:
        simulator = simulated(parsed(more + "network.drop_out = 0.3", edges=3, updates=10_000))
        assert simulator.server.halt_reason == NOBODY
        assert simulator.server.version < 10_000

    def test_answers_that_all_come_after_their_deadline_end_the_run(self) -> None:
        algorithm = 'algorithm = {name = "fedavg", deadline_s = 1.0, steps_min = 2}\n'
        simulator = simulated(parsed(algorithm, edges=3, updates=6))
        assert simulator.server.halt_reason == ALL_LATE
        assert simulator.server.version == 0

    def test_spent_budgets_end_the_run(self) -> None:
        run = parsed(FEDASYNC, mechanism="gaussian", epsilon=1.0, updates=10_000)
        simulator = simulated(run)
        assert simulator.server.halt_reason == NOBODY
        for record in simulator.server.edges.values():
            assert record.retired.startswith("epsilon=1.0")
            assert 0.95 < epsilon_pld(record.spent, 1e-5) <= 1.0

    def test_fedasync_gives_the_task_of_one_who_is_gone_to_another(self) -> None:
        algorithm = (
            'algorithm = {name = "fedasync", concurrency = 1, deadline_s = 7.0, steps_min = 2}\n'
        )
        simulator = simulated(
            parsed(algorithm + "network.away = [{edge = 0, leaves = 1}]", updates=5)
        )
        # edge-0 is asked at 0 s and gone; at 7 s nobody has taken a whole period yet, at 14 s
        # edge-1 is asked.
        assert simulator.server.edges["edge-1"].updates == 5


class TestSampledStaleness:
    def test_it_is_uniform_and_nothing_older_is_held(self) -> None:
        simulator = simulated(parsed(FEDASYNC + "network.staleness = 4", edges=3, updates=1000))
        counts = [simulator.server.staleness[tau] for tau in range(5)]
        assert sum(counts) == 1000
        assert all(abs(count - 200) < 5 * (1000 * 0.2 * 0.8) ** 0.5 for count in counts)
        assert simulator.now == 0.0

    def test_zero_is_sequential(self) -> None:
        simulator = simulated(parsed(FEDASYNC + "network.staleness = 0", updates=30))
        assert simulator.server.staleness == {0: 30}

    def test_rounds_have_none(self) -> None:
        with pytest.raises(ConfigError, match=r"network.staleness=2: dp-pasgd works in rounds"):
            parsed(PASGD + "network.staleness = 2")


@pytest.mark.parametrize("more", [ASGD, FEDASYNC, PASGD, FEDASYNC + "network.staleness = 3\n"])
def test_the_same_seed_gives_the_same_bits_and_another_gives_others(more: str) -> None:
    world = (
        ""
        if "staleness = 3" in more
        else 'network = {compute.model = "lognormal", uplink.model = "exponential"}'
    )
    mechanism = "none" if more == ASGD else "discrete_gaussian"
    first, again, other = (
        simulated(parsed(more + world, edges=3, updates=12, mechanism=mechanism, seed=seed))
        for seed in (3, 3, 4)
    )
    assert torch.equal(first.server.params, again.server.params)
    assert (first.now, dict(first.server.staleness)) == (again.now, dict(again.server.staleness))
    assert not torch.equal(first.server.params, other.server.params)


@pytest.mark.parametrize("model", ["logistic", "svm"])
@pytest.mark.parametrize("algorithm", ["mapa", "fedasync", "fedbuff", "fedavg", "dp-pasgd"])
def test_computing_edges_together_gives_the_bits_of_one_by_one(
    algorithm: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = {
        "mapa": 'name = "mapa", smoothness = 1.0, deviation = 1.0',
        "dp-pasgd": 'name = "dp-pasgd", tau = 3',
        "fedasync": 'name = "fedasync", steps_min = 1, steps_max = 4, proximal = 0.1',
    }.get(algorithm, f'name = "{algorithm}", steps_min = 1, steps_max = 4')
    more = f'algorithm = {{{section}}}\nnetwork.compute.model = "exponential"'
    run = parsed(more, edges=7, updates=40, mechanism="gaussian", epsilon=4.0)
    run = run.model_copy(update={"model": run.model.model_copy(update={"name": model})})
    most, work = 0, batched_edges.answer_together

    def counting(tasks: Sequence[tuple[EdgeRole, GlobalModel]]) -> list[Push]:
        nonlocal most
        most = max(most, len(tasks))
        return work(tasks)

    monkeypatch.setattr(batched_edges, "answer_together", counting)
    in_one_go = simulated(run)
    assert most > 1

    monkeypatch.setattr(batched_edges, "batchable", lambda edge, task: False)
    alone = simulated(run)
    assert torch.equal(in_one_go.server.params, alone.server.params)
    assert in_one_go.server.edges["edge-3"].spent == alone.server.edges["edge-3"].spent
    assert in_one_go.now == alone.now


def test_tasks_that_the_budget_does_not_pay_for_are_not_computed_together() -> None:
    more = 'algorithm = {name = "dp-pasgd", tau = 7, deadline_s = 9.0}'
    simulator = simulated(parsed(more, edges=3, updates=10_000, mechanism="gaussian", epsilon=1.0))
    assert simulator.server.halt_reason == NOBODY
    for name, record in simulator.server.edges.items():
        assert epsilon_pld(record.spent, 1e-5) <= 1.0
        role = simulator.edges[name]
        assert isinstance(role, LocalStepsEdge)
        remaining = role.releaser.releases_left
        assert remaining is not None
        assert 0 <= remaining < 7


class TestLedger:
    def test_it_says_what_a_ledger_says_of_secret_noise(self) -> None:
        real, simulated = Ledger(":memory:", "digits"), SimulatedLedger()
        for q, z, mechanism, count in (
            (0.1, 1.0, "gaussian", 3),
            (0.1, 2.0, "knorm", 1),
            (0.1, 1.0, "gaussian", 2),
        ):
            real.charge(q, z, mechanism, secret=True, count=count)
            simulated.charge(q, z, mechanism, secret=False, count=count)
        assert simulated.history() == real.history()
        assert simulated.charged().count == real.charged().count == 6

    def test_no_noise_costs_everything_here_too(self) -> None:
        ledger = SimulatedLedger()
        ledger.charge(0.5, 0.0, "paper", secret=False)
        assert epsilon_pld(ledger.history(), 1e-5) == float("inf")

    def test_secret_noise_is_not_for_it(self) -> None:
        with pytest.raises(PrivacyError, match="not durable"):
            SimulatedLedger().charge(0.5, 1.0, "gaussian", secret=True)


def test_the_command_fails_where_no_update_was_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "run.toml", tmp_path / "out"
    late = 'algorithm = {name = "fedavg", deadline_s = 1.0, steps_min = 2}\n'
    file.write_text(
        toml(RUN, late, run={"updates": 6}, edges={"count": 2}, privacy={"mechanism": "none"})
    )
    assert tacit("simulate", str(file), "--out", str(out), "--json") == TacitError.exit_code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["applied"] == 0
    assert (out / "summary.json").exists()
    assert (
        f"no update was applied, so the model is the one that the run began with: {ALL_LATE}"
        in (" ".join(printed.err.split()))
    )


def test_the_command_writes_what_a_run_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "run.toml", tmp_path / "out"
    file.write_text(
        toml(
            RUN,
            FEDASYNC,
            run={"updates": 6, "seed": 1},
            edges={"count": 2},
            privacy={"mechanism": "gaussian", "epsilon": 50.0},
        )
    )
    assert tacit("simulate", str(file), "--out", str(out), "--json") == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary == json.loads(capsys.readouterr().out)
    assert {path.name for path in out.iterdir()} == {
        "summary.json",
        "metrics.jsonl",
        "model.safetensors",
        "ledger.json",
        "plot.png",
        "definition.json",
    }
    assert summary["virtual_time_s"] == 6.0
    assert summary["gradients"] == 12  # what was under way at the end is never computed
    assert summary["privacy"]["simulated"] is True
    assert summary["privacy"]["guarantee"].startswith("none here")
    assert 0 < summary["privacy"]["epsilon"] < 50
