"""Peers under a virtual clock.

Same bits for the same seed, nobody waits but SYNC, and who was away comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest
import torch
from tacit_services.testbed.simulated_run import Simulation

from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.algorithms.gossip.report_fold import ReportFold
from tacit.algorithms.gossip.worker import GossipWorker
from tacit.privacy.private_sum.clipping import Clipped
from tacit.simulation import peers
from tacit.simulation.batched_edges import clipped_sums
from tacit.simulation.peers import NOBODY, PeerSimulator
from tests.helpers.run_files import Layer, run_file

FILE: Layer = {
    "algorithm": {"learning_rate": 0.5, "report_every": 4},
    "privacy": {"noise_multiplier": 4.0, "batch": 32, "clip": 0.2},
    "edges": {"count": 4},
    "network": {"uplink": {"seconds": 0.02}, "downlink": {"seconds": 0.02}},
}


def simulated(
    *,
    updates: int = 80,
    seed: int = 1,
    name: str = "adp2sgd",
    topology: str = "ring",
    mechanism: str = "gaussian",
    epsilon: float = 100.0,
    slowdown: Sequence[float] = (),
    network: str = "",
) -> PeerSimulator:
    """Return the simulator of a run that has ended; `network` is more of its section."""
    run = run_file(
        FILE,
        {"network": network},
        run={"updates": updates, "seed": seed},
        algorithm={"name": name, "topology": topology},
        privacy={"mechanism": mechanism, "epsilon": epsilon},
        edges={"slowdown": list(slowdown)},
    )
    simulator = Simulation(run.define(), None).simulator
    assert isinstance(simulator, PeerSimulator)
    simulator.run()
    return simulator


@lru_cache
def usual() -> PeerSimulator:
    return simulated()


@pytest.mark.parametrize("name", ["adp2sgd", "sync"])
def test_computing_peers_together_gives_the_bits_of_one_by_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {
        "name": name,
        "network": 'compute = {model = "exponential"}',
        "epsilon": 0.5,
    }
    most = 0

    def counting(peers: Sequence[GossipWorker], models: Sequence[torch.Tensor]) -> list[Clipped]:
        nonlocal most
        most = max(most, len(peers))
        return clipped_sums(peers, models)

    monkeypatch.setattr(peers, "clipped_sums", counting)
    together = simulated(**changes)
    assert most > 1

    monkeypatch.setattr(peers, "can_batch", lambda peer, clip: False)
    alone = simulated(**changes)
    assert together.now == alone.now
    for peer, role in workers(together).items():
        assert torch.equal(role.trained.params, alone.edges[peer].trained.params)
        assert role.releaser.ledger.history() == alone.edges[peer].releaser.ledger.history()


def workers(simulator: PeerSimulator) -> dict[str, GossipWorker]:
    return simulator.edges


def test_a_run_ends_with_every_step_counted_and_paid() -> None:
    simulation = usual()
    assert isinstance(simulation.server, ReportFold)
    assert (simulation.server.version, simulation.server.halt_reason) == (80, "all updates applied")
    steps = {name: role.steps for name, role in workers(simulation).items()}
    assert 80 <= sum(steps.values()) <= 88  # a step or two more of each that had not heard yet
    for name, role in workers(simulation).items():
        assert sum(row.count for row in role.releaser.ledger.history()) == steps[name]
        assert simulation.server.edges[name].updates == steps[name]
    models = torch.stack([role.trained.params for role in workers(simulation).values()])
    assert torch.allclose(models.mean(0).float(), simulation.server.params, atol=1e-6)


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    again, other = simulated(), simulated(seed=2)
    assert torch.equal(usual().server.params, again.server.params)
    assert usual().now == again.now
    assert not torch.equal(usual().server.params, other.server.params)


def test_a_slow_peer_slows_nobody_but_sync() -> None:
    slow = [1.0, 1.0, 1.0, 10.0]
    alone, together = simulated(slowdown=slow), simulated(slowdown=slow, name="sync")
    assert alone.now < 1.3 * usual().now + 10.0  # three quarters of the speed, and its last step
    assert together.now > 9 * simulated(name="sync").now
    assert workers(alone)["edge-3"].steps * 5 < workers(alone)["edge-0"].steps


def test_in_sync_all_have_the_same_model_after_every_round() -> None:
    simulation = simulated(name="sync")
    models = [role.trained.params for role in workers(simulation).values()]
    assert all(torch.equal(models[0], model) for model in models)
    assert simulation.server.version == 80


@pytest.mark.parametrize("name", ["adp2sgd", "sync"])
def test_who_was_away_averages_again_when_it_is_back(name: str) -> None:
    away = "away = [{edge = 1, leaves = 3.0, returns = 9.5}]"
    simulation = simulated(name=name, network=away, updates=120)
    assert simulation.server.version == 120
    for role in workers(simulation).values():
        assert role.settled
    if name == "adp2sgd":
        returned = workers(simulation)["edge-1"]
        assert isinstance(returned, Peer)
        assert all(link.answered > 10 for link in returned.links.values())


def test_a_peer_that_never_returns_leaves_one_exchange_open_and_the_others_their_steps() -> None:
    simulation = simulated(network="away = [{edge = 1, leaves = 3.0}]")
    assert simulation.server.version == 80
    assert workers(simulation)["edge-1"].steps <= 3
    assert min(workers(simulation)[name].steps for name in ("edge-0", "edge-2", "edge-3")) >= 20


def test_when_all_budgets_are_spent_the_run_ends_early() -> None:
    simulation = simulated(epsilon=1.0, updates=10_000)
    assert simulation.server.halt_reason == NOBODY
    assert all(role.releaser.releases_left == 0 for role in workers(simulation).values())
    assert all(record.retired for record in simulation.server.edges.values())
