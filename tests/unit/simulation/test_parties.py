"""A vertical run under a virtual clock.

The same bits for the same seed, budgets that bind, slow and absent parties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tacit_services.testbed.simulated_run import Simulation

from tacit import config
from tacit.algorithms.vafl.label_server import LabelServer
from tacit.errors import ConfigError
from tacit.models import evaluate
from tests.conftest import ROOT
from tests.helpers.run_files import Layer, run_file

FILE: Layer = {
    "algorithm": {"name": "vafl", "learning_rate": 0.5},
    "privacy": {"batch": 64},
    "edges": {"count": 4},
    "network": {"uplink": {"seconds": 0.02}, "downlink": {"seconds": 0.02}},
}
PRIVATE = 'mechanism = "gaussian"\nepsilon = 50.0\npushes = 4'


def simulated(
    *,
    updates: int = 120,
    seed: int = 1,
    algorithm: str = "",
    privacy: str = 'mechanism = "none"',
    slowdown: Sequence[float] = (),
    network: str = "",
) -> tuple[Simulation, LabelServer]:
    """Return a run that has ended; `algorithm`, `privacy` and `network` add to their sections."""
    run = run_file(
        FILE,
        {"algorithm": algorithm, "privacy": privacy, "network": network},
        run={"updates": updates, "seed": seed},
        edges={"slowdown": list(slowdown)},
    )
    simulation = Simulation(run.define(), None)
    simulation.simulator.run()
    assert isinstance(simulation.role, LabelServer)
    return simulation, simulation.role


def test_the_same_seed_gives_the_same_bits_and_it_learns() -> None:
    (_, first), (_, second), (_, other) = simulated(), simulated(), simulated(seed=2)
    assert first.version == 120
    assert torch.equal(first.params, second.params)
    assert not torch.equal(first.params, other.params)
    assert first.evaluation.latest is not None
    version, params, examples = first.evaluation.latest
    assert version == 120
    assert evaluate(first.head, params, examples)[0] > 0.8


def test_a_slow_party_delays_nobody_but_the_synchronous() -> None:
    slow: dict[str, Any] = {"slowdown": [1.0, 1.0, 1.0, 10.0], "updates": 60}
    alone = simulated(updates=60)[0].simulator.now
    waiting = simulated(**slow, algorithm="synchronous = true", network="start = 'cyclic'")[
        0
    ].simulator.now
    simulation, role = simulated(**slow)
    # Its table and its last evaluation are waited for: two of its tasks. In between the other three
    # do the work.
    assert simulation.simulator.now < 1.5 * alone + 25.0 < waiting
    records = {name: record.updates for name, record in role.edges.items()}
    assert min(records[f"edge-{number}"] for number in range(3)) > 3 * records["edge-3"]


def test_budgets_bind_as_in_a_run_and_labels_are_noisy() -> None:
    algorithm = 'mode = "fresh"\nwidth = 2\ncombine = "concat"\nlabel_epsilon = 2.0'
    simulation, role = simulated(updates=2000, algorithm=algorithm, privacy=PRIVATE)
    assert role.halt_reason == "every party has retired"
    assert simulation.state == "halted"
    assert {record.charged.count for record in role.edges.values()} == {4}
    assert role.labelled.label_epsilon == 2.0
    assert 0 < int((role.labelled.labels != simulated(updates=1)[1].labelled.labels).sum()) < 1437


def test_a_party_that_drops_out_ends_the_run_early_and_ages_are_refused() -> None:
    simulation, role = simulated(
        algorithm="synchronous = true", network="away = [{ edge = 2, leaves = 20.0 }]"
    )
    assert simulation.state == "halted"
    assert 0 < role.version < 120
    run = config.load(ROOT / "experiments" / "vafl-digits.toml")
    aged = run.model_copy(update={"network": run.network.model_copy(update={"staleness": 4})})
    with pytest.raises(ConfigError, match=r"network\.staleness"):
        Simulation(aged.define(), None)
