"""kill -9 where a version takes more than one update.

Half a FedBuff buffer, half a round of FedAvg or DP-PASGD.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
import torch
from tacit_services.journal.weights import weights

from tacit import config
from tests.helpers.processes import Caller, Deployment, appended, check, deployment, refold
from tests.helpers.run_files import Layer, toml
from tests.helpers.servers import mosquitto, redis_server
from tests.system.test_crash import accept, say_hello

RUN: Layer = {
    "algorithm": {"learning_rate": 0.2},
    "privacy": {"noise_multiplier": 1.0, "clip": 1.0, "batch": 32, "epsilon": 100.0},
    "edges": {"count": 3},
}
SECTIONS = {
    "fedbuff": "steps_min = 2\nbuffer = 4\nstaleness = 'polynomial'",
    "fedavg": "steps_min = 2\ndeadline_s = 2.0",
    "dp-pasgd": "tau = 2\ndeadline_s = 2.0",
    "fedasync": "steps_min = 2\nconcurrency = 2\ndeadline_s = 2.0",
}


class Deploy(Protocol):
    """Makes the deployment of one algorithm; `more`: further keys of its section."""

    def __call__(self, name: str, updates: int, snapshot: int, **more: float) -> Deployment: ...


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """Yield a function that deploys one algorithm on mosquitto and redis, and starts nothing yet."""
    with (
        mosquitto(tmp_path) as broker,
        redis_server(tmp_path, "--auto-aof-rewrite-min-size", "1gb") as redis,
    ):
        contexts: list[Iterator[Deployment]] = []

        def one(name: str, updates: int, snapshot: int, **more: float) -> Deployment:
            file = toml(
                RUN,
                {"algorithm": SECTIONS[name]},
                run={"updates": updates, "snapshot_every": snapshot},
                algorithm={"name": name, **more},
            )
            context = deployment(
                tmp_path, file, f"{broker.host}:{broker.port}", redis.url, f"crash-{name}"
            )
            contexts.append(context)  # type: ignore[arg-type]
            return context.__enter__()

        yield one
        for context in contexts:
            context.__exit__(None, None, None)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "snapshot"),  # from a snapshot, or from the journal
    [
        ("fedbuff", 1000),
        *(
            pytest.param(*which, marks=pytest.mark.slow)
            for which in (("fedbuff", 1), ("fedavg", 1), ("dp-pasgd", 1000))
        ),
    ],
)
def test_half_a_version_survives_kill_9_of_the_aggregator(
    deploy: Deploy, name: str, snapshot: int
) -> None:
    # Given an aggregator with all but one of the updates that its first version needs, which it
    # waits for: with two seconds a slow machine's round would end with the two that are there,
    run = deploy(name, 1, snapshot, **({} if name == "fedbuff" else {"deadline_s": 600.0}))
    aggregator = run.aggregator()
    callers = [Caller(run.broker, run.run_id, f"edge-{number}") for number in range(3)]
    for caller in callers:
        say_hello(run, caller, 1)
    sends = [(callers[0], 2), (callers[1], 2), (callers[2], 2), (callers[0], 3)][
        : 4 if name == "fedbuff" else 3
    ]
    for caller, seq in sends[:-1]:
        accept(caller, run, seq)
    # when it is killed, and the last update comes to its successor,
    aggregator.kill()
    aggregator.start()
    accept(*(sends[-1][0], run, sends[-1][1]))
    # then the run ends with the model that an aggregator which was never killed makes of the same
    # updates.
    assert aggregator.wait() == 0, aggregator.log
    summary, journal = run.summary(), appended(run.folder)
    file = config.load(run.file)
    model = file.build_model()
    role, updates = refold(file, [entry.payload for entry in journal])
    assert (summary["applied"], role.version, sum(updates.values())) == (1, 1, len(sends))
    torch.testing.assert_close(
        role.params, torch.full((model.size,), 1e-3)
    )  # every one was this, and weighs 1
    assert (run.out / "model.safetensors").read_bytes() == weights(model, role.params)
    for caller in callers:
        caller.connection.stop()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("fedavg", marks=pytest.mark.slow),
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("fedbuff", "dp-pasgd", "fedasync")
        ),
    ],
)
def test_aggregator_and_an_edge_killed_again_and_again_end_in_the_same_bits(
    deploy: Deploy, name: str
) -> None:
    run = deploy(
        name, 240 if name == "fedasync" else 60, 7
    )  # where a version is one update, as many entries
    aggregator = run.aggregator()
    edges = [run.edge(number) for number in range(3)]
    for count in (20, 45, 70):
        run.wait_accepted(count)
        aggregator.kill()
        aggregator.start()
        edges[0].kill()
        edges[0].start()
    summary = run.ended()
    check(run, summary, appended(run.folder), range(3))
    assert aggregator.log.count("resumed at version") == 3
