"""Schedules of a step size, beside values that were computed by hand."""

from __future__ import annotations

import pytest
import torch

from tacit.algorithms import registry
from tacit.algorithms.gossip.worker import GossipWorker
from tacit.algorithms.mapa.mapa import MapaServer
from tacit.algorithms.mapa.mapa_settings import Mapa
from tacit.algorithms.vafl.step_rules import StepRule
from tacit.algorithms.vafl.vafl_settings import Vafl
from tacit.datasets import EdgeRows
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Releaser
from tacit.protocol.messages import GlobalModel
from tests.helpers.run_files import run_file


def section(**keys: object) -> Mapa:
    return Mapa.model_validate({"name": "audp", **keys})


@pytest.mark.parametrize(
    ("keys", "expected"),  # of versions 0, 25, 50, 75, 100 of 100
    [
        ({}, [1, 1, 1, 1, 1]),
        ({"schedule": "constant"}, [1, 1, 1, 1, 1]),
        ({"schedule": "linear"}, [1, 0.75, 0.5, 0.25, 0]),
        ({"schedule": "cosine"}, [1, 0.853553, 0.5, 0.146447, 0]),
        ({"schedule": "step"}, [1, 0.5, 0.25, 0.125, 0.125]),
        ({"warm_up": 0.5}, [0.02, 0.52, 1, 1, 1]),
        ({"warm_up": 0.5, "schedule": "linear"}, [0.02, 0.39, 0.5, 0.25, 0]),
    ],
)
def test_a_schedule_is_a_function_of_the_version_alone(
    keys: dict[str, object], expected: list[float]
) -> None:
    settings = section(**keys)
    assert [settings.factor(version, 100) for version in (0, 25, 50, 75, 100)] == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("name", ["audp", "mapa"])
def test_a_rate_of_the_run_file_takes_the_place_of_table_ii(name: str) -> None:
    run = run_file(
        run={"updates": 10},
        algorithm={"name": name, "learning_rate": 4.0, "schedule": "linear"},
        privacy={"clip": 1.0, "noise_multiplier": 1.0, "batch": 32},
    )
    server = MapaServer(run.define(), run.build_model())
    assert server.learning_rate() == 4.0
    server.version = 5
    assert server.learning_rate() == 2.0


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedasync", "learning_rate": 0.5, "steps_min": 1},
        {"name": "fedavg", "learning_rate": 0.5, "steps_min": 1},
        {"name": "dp-pasgd", "learning_rate": 0.5, "tau": 1},
    ],
)
def test_local_steps_follow_it_at_the_edge(algorithm: dict[str, object]) -> None:
    """Check that a push at the end of a linear schedule has moved by next to nothing."""
    run = run_file(
        run={"updates": 100},
        algorithm={**algorithm, "schedule": "linear"},
        privacy={"mechanism": "none", "batch": 40},
    )
    definition = run.define()
    model = definition.build_model()
    moved = []
    for version in (0, 50, 99):
        releaser = Releaser(run.plan(0), Ledger(":memory:", "test"), Random(1))
        x, y = model.random_batch(41, torch.Generator().manual_seed(1))
        role = registry.edge(definition, "edge-0", EdgeRows(x, y), model, releaser)
        [out] = role.on_message(GlobalModel(version, model.init(1), 1.0))
        vector = out.message.released.vector  # type: ignore[union-attr]
        moved.append(float((vector - model.init(1)).norm()))
    assert moved[1] == pytest.approx(moved[0] / 2, rel=0.2)
    assert moved[2] == pytest.approx(moved[0] / 100, rel=0.2)


@pytest.mark.parametrize("name", ["adp2sgd", "sync"])
def test_peers_follow_it_by_the_global_counter(name: str) -> None:
    run = run_file(
        run={"updates": 100},
        algorithm={"name": name, "learning_rate": 0.5, "schedule": "linear"},
        privacy={"clip": 1.0, "noise_multiplier": 1.0, "batch": 32},
        edges={"count": 4},
    )
    definition = run.define()
    model = definition.build_model()
    x, y = model.random_batch(41, torch.Generator().manual_seed(1))
    releaser = Releaser(run.plan(0), Ledger(":memory:", "test"), Random(1))
    peer = registry.edge(definition, "edge-0", EdgeRows(x, y), model, releaser)
    assert isinstance(peer, GossipWorker)
    assert peer.rate == 0.5
    peer.counts |= {"edge-0": 20, "edge-2": 30}
    assert peer.rate == 0.25


def test_parties_and_their_server_follow_it_unless_a_theorem_gives_the_step() -> None:
    settings = Vafl.model_validate({"name": "vafl", "schedule": "linear"})
    steps = StepRule(rate=0.5, server_share=0.5, horizon=100, factor=settings.factor)
    assert (steps.party(50), steps.server(50)) == (0.25, 0.125)
    by_theorem = StepRule(rule="theorem_1", horizon=100, factor=settings.factor)
    assert by_theorem.party(50) == by_theorem.party(0)
    keys = {"name": "vafl", "schedule": "linear", "steps_rule": "theorem_1"}
    assert (settings.unread(), Vafl.model_validate(keys).unread()) == ([], ["schedule"])
