"""45 MB models and updates over a network that delays, loses, goes dark and cuts, and over a
broker that dies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tacit_services.journal.store.memory import MemoryStore
from tacit_services.transport import transfer

from tacit.algorithms.base.edge import EdgeRole
from tacit.config import RunFile
from tacit.privacy.private_sum.clipping import Clipped
from tacit.protocol.messages import GlobalModel, Outgoing, Push, ServerOutput
from tests.golden.harness import make_edge, sha256
from tests.helpers.network import Network, network
from tests.helpers.processes import refold
from tests.helpers.rig import ROOMY, Rig
from tests.helpers.run_files import Layer
from tests.helpers.run_files import run_file as made
from tests.helpers.servers import Mosquitto, wait_for

MB = 10**6
RUN: Layer = {
    "run": {"snapshot_every": 1000000},
    "model": {"name": "cnn", "channels": [1, 1], "kernel": 3},
    "algorithm": {"name": "asgd", "smoothness": 1.0, "deviation": 1.0, "max_staleness": 100},
    "privacy": {"batch": 32, "mechanism": "none"},
}


def run_file(parameters: int, *, updates: int = 1, edges: int = 1) -> RunFile:
    """Return a run with about so many parameters."""
    small, large = (
        made(RUN, run={"updates": 1}, model={"hidden": [h, 2000]}).build_model().size
        for h in (1, 2)
    )
    hidden = (parameters - small) // (large - small)
    return made(
        RUN, run={"updates": updates}, model={"hidden": [hidden, 2000]}, edges={"count": edges}
    )


def ready(rig: Rig, number: int = 0) -> EdgeRole:
    """Return an edge whose update is computed already."""
    role = make_edge(rig.run, rig.model, number, 1)
    compute = role.on_message
    vector = torch.randn(rig.model.size, generator=torch.Generator().manual_seed(1))

    def on_message(message: ServerOutput) -> list[Outgoing]:
        if not isinstance(message, GlobalModel):
            return compute(message)
        released = role.releaser.release(message.clip, lambda: Clipped(vector, 1.0))
        return [Outgoing("server", Push(role.edge, message.version, released))]

    role.on_message = on_message  # type: ignore[method-assign]
    return role


class Kept(MemoryStore):
    """Nothing is trimmed: the whole journal can be folded again."""

    def save(self, snapshot: Any) -> None:
        """Forget it."""


def rig_on(broker: Mosquitto, run: RunFile, run_id: str) -> Rig:
    return Rig(run, f"{broker.host}:{broker.port}", run_id, Kept(run_id, ROOMY))


def check(rig: Rig) -> None:
    """Check that the model is the fold of what was accepted, each once."""
    records = rig.store.read(0, 10**6)
    assert len({(record.edge, record.seq) for record in records}) == len(records)
    role, _ = refold(rig.run, [record.payload for record in records])
    assert role.version == rig.live.role.version == rig.run.run.updates
    assert sha256(role) == sha256(rig.live.role)


@pytest.mark.exhaustive
@pytest.mark.alone
def test_45_mb_go_both_ways_through_delays_losses_and_blackouts(
    broker: Mosquitto, tmp_path: Path
) -> None:
    # Given an edge behind 200 ms each way, of whose segments one in twenty has to be sent again,
    run = run_file(11_250_000)
    rig = rig_on(broker, run, "far")
    rig.serve()
    with network(rig.broker, delay=0.2, loss=0.05) as far:
        # and which is cut off for two seconds four times: twice each way, silently and with the
        # connection lost,
        far.when(lambda net: net.down > 15 * MB, lambda: far.blackout(2.0))
        far.when(lambda net: net.down > 30 * MB, lambda: far.blackout(2.0, cut=True))
        far.when(lambda net: net.up > 15 * MB, lambda: far.blackout(2.0))
        far.when(lambda net: net.up > 30 * MB, lambda: far.blackout(2.0, cut=True))
        rig.edge(0, tmp_path, patience=20.0, broker=far.address, make=partial(ready, rig))
        # then the model reaches it and its update the model,
        rig.finished(240.0)
        check(rig)
        # and no more was sent again than was under way when the connection was lost.
        size, again = 4 * rig.model.size, 2 * transfer.WINDOW * rig.chunk
        assert far.cuts == 2
        assert size < far.down < size + again
        assert size < far.up < size + again


def watched(net: Network, broker: Mosquitto) -> None:
    """Kill the broker when half of an update has passed, and start it again."""
    net.when(lambda traffic: traffic.up > 22 * MB, broker.kill)
    wait_for(lambda: broker._process is None)
    broker.start()


@pytest.mark.slow
def test_a_broker_that_dies_in_mid_upload_costs_what_it_had_in_its_memory(
    broker: Mosquitto, tmp_path: Path
) -> None:
    run = run_file(11_250_000)
    rig = rig_on(broker, run, "mid-upload")
    rig.serve()
    with network(rig.broker) as near:
        rig.edge(0, tmp_path, patience=5.0, broker=near.address, make=partial(ready, rig))
        watched(near, broker)
        rig.finished(120.0)
        check(rig)
        size = 4 * rig.model.size
        assert size < near.up < size + 2 * transfer.WINDOW * rig.chunk


@dataclass
class Peak:
    """The most memory that a process has had, in MB."""

    pid: int

    @property
    def mb(self) -> float:
        (line,) = [
            line
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            if "VmHWM" in line
        ]
        return int(line.split()[1]) / 1000


@pytest.mark.exhaustive
def test_twenty_edges_with_45_mb_each_take_less_than_200_mb_of_the_broker(
    broker: Mosquitto, tmp_path: Path
) -> None:
    run = run_file(11_250_000, updates=20, edges=20)
    rig = rig_on(broker, run, "twenty")
    rig.serve()
    for number in range(20):
        rig.edge(number, tmp_path, patience=20.0, make=partial(ready, rig, number))
    rig.finished(240.0)
    assert rig.live.role.version == 20
    peak = Peak(broker.pid).mb
    print(f"broker: {peak:.0f} MB at most")  # noqa: T201  (shown by -rP)
    assert peak < 200
