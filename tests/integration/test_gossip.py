"""Peers over a real broker, in processes: killed, cut off, and told everything twice, they conserve the mean."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from services.peer.state import PeerState
from services.runtime.mqtt import Connection, Inbound
from tacit import config
from tacit.privacy.accounting import Spend, epsilon_pld
from tests.integration.network import network
from tests.integration.processes import Deployment, Service, deployment
from tests.integration.servers import mosquitto, wait_for

RUN = """
[run]
updates = {updates}
[data]
dataset = "digits"
[model]
name = "logistic"
[algorithm]
name = "{name}"
learning_rate = {rate}
topology = "{topology}"
report_every = 5
[privacy]
mechanism = "{mechanism}"
noise_multiplier = 2.0
epsilon = 1000.0
batch = 32
clip = 0.2
[edges]
count = {count}
"""
COUNT = 4
PATIENCE = 240.0  # seconds; a deadline on a busy machine: four processes import torch at once
STILL = {"updates": 10**9, "name": "adpsgd", "rate": 1e-30, "topology": "ring", "mechanism": "none", "count": COUNT}


@contextmanager
def run(folder: Path, **settings: object) -> Iterator[Deployment]:
    with mosquitto(folder) as broker:
        address = f"{broker.host}:{broker.port}"
        with deployment(folder, RUN.format(**settings), address, f"sqlite:///{folder}/store.db", "gossip") as made:
            yield made


class Disks:
    """What the peers of a run have on disk."""

    def __init__(self, made: Deployment) -> None:
        self._made = made
        self.size = config.load(made.file).build_model().size

    def prepare(self) -> None:
        """Models of their own, as if they had trained apart."""
        generator = torch.Generator().manual_seed(5)
        for number in range(COUNT):
            with closing(self._open(number)) as state:
                params = torch.randn(self.size, generator=generator, dtype=torch.float64)
                state.save({"params": params}, {"life": 1, "counts": {}, "links": {}, "staleness": []})

    def total(self) -> Tensor:
        """(d,): the sum of all models, less what a receiver has added and the proposer not yet taken off."""
        states = [self._read(number) for number in range(COUNT)]
        total = torch.stack([tensors["params"] for tensors, _ in states]).sum(0)
        for me, (_, values) in enumerate(states):
            for other, (proposed, is_open, _, _) in values.get("links", {}).items():
                tensors, theirs = states[int(other.removeprefix("edge-"))]
                _, _, life, answered = theirs["links"][f"edge-{me}"]
                if is_open and (life, answered) == (values["life"], proposed):
                    total -= tensors[f"delta/edge-{me}"]
        return total

    def spread(self) -> float:
        return float(torch.stack([self._read(number)[0]["params"] for number in range(COUNT)]).std(0).max())

    def answered(self, number: int) -> int:
        """Exchanges that a peer has had, both ways."""
        links = self._read(number)[1]["links"].values()
        return sum(proposed + answered for proposed, _, _, answered in links)

    def steps(self, number: int) -> int:
        counts: dict[str, int] = self._read(number)[1]["counts"]
        return counts.get(f"edge-{number}", 0)

    def _read(self, number: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        with closing(self._open(number)) as state:
            found = state.load()
        assert found is not None
        return found

    def _open(self, number: int) -> PeerState:
        folder = self._made.folder / "identities" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        return PeerState(folder / "peer.db", "gossip")


def peer(made: Deployment, number: int, **more: str) -> Service:
    settings = {"TACIT_IDENTITIES": str(made.folder / "identities"), "TACIT_PATIENCE": "1"}
    return made._started("peer", settings | {"TACIT_IDENTITY": str(number)} | more, f"peer-{number}")


class Echo:
    """Says everything that peers say a second time, later and in another order."""

    def __init__(self, broker: str) -> None:
        self.said = 0
        self._held: list[Inbound] = []
        self._seen: set[tuple[str, bytes]] = set()
        self._lock = threading.Lock()
        self.connection = Connection(broker, "echo", ["tacit/v1/gossip/peer/#"], self._repeat)
        self.connection.start(10.0)

    def _repeat(self, inbound: Inbound) -> None:
        inbound.done()
        with self._lock:
            if (inbound.topic, inbound.payload) not in self._seen:
                self._seen.add((inbound.topic, inbound.payload))
                self._held.append(inbound)
            if len(self._held) >= 6:
                for held in reversed(self._held):
                    self.connection.publish(held.topic, held.payload)
                self.said += len(self._held)
                self._held.clear()


@pytest.mark.slow
def test_the_mean_survives_kills_a_partition_and_everything_said_twice(tmp_path: Path) -> None:
    with run(tmp_path, **STILL) as made, network(made.broker) as cable:
        disks = Disks(made)
        disks.prepare()
        first, spread = disks.total(), disks.spread()
        echo = Echo(made.broker)
        peers = [peer(made, n, **({"TACIT_BROKER": cable.address} if n == 2 else {})) for n in range(COUNT)]
        wait_for(lambda: min(disks.answered(n) for n in range(COUNT)) > 5, PATIENCE)
        for number in (1, 0, 1):
            peers[number].kill()
            before = disks.answered(3)
            wait_for(lambda: disks.answered(3) > before + 3, PATIENCE)  # noqa: B023  (used at once)
            peers[number].start()
            wait_for(lambda: "is here" in peers[number].log, PATIENCE)  # noqa: B023
        cable.blackout(4.0, cut=True)
        apart = [disks.steps(n) for n in range(COUNT)]
        wait_for(lambda: all(disks.steps(n) > apart[n] + 5 for n in (0, 1, 3)), PATIENCE)  # nobody waits for edge-2
        met = disks.answered(2)
        wait_for(lambda: disks.answered(2) > met + 10, PATIENCE)  # it is back
        echo.connection.stop()
        assert echo.said > 50
        for service in peers:
            assert service.signal(signal.SIGTERM) == 0, service.log
        assert float((disks.total() - first).abs().max()) < 1e-9
        assert disks.spread() < 0.5 * spread
        assert cable.cuts


@pytest.mark.parametrize("name", ["adp2sgd", "sync"])
def test_a_run_ends_by_itself_and_its_epsilon_is_the_ledgers(tmp_path: Path, name: str) -> None:
    settings = {"updates": 120, "name": name, "rate": 0.5, "topology": "ring", "mechanism": "gaussian", "count": COUNT}
    with run(tmp_path, **settings) as made:
        disks = Disks(made)
        made.aggregator()
        for number in range(COUNT):
            peer(made, number)
        wait_for((made.out / "summary.json").exists, PATIENCE)
        summary = made.ended()
        assert summary["applied"] == 120
        rate = config.load(made.file).sampling_rate()
        for number in range(COUNT):
            said = summary["privacy"]["edges"][f"edge-{number}"]
            events = [Spend(rate, 2.0, 1)] * made.pushes(number)  # one for each charge in the ledger's chain
            assert said["pushes"] == len(events) >= disks.steps(number)
            assert said["epsilon_pld"] == pytest.approx(epsilon_pld(events, 1e-5), rel=1e-6)
        assert sum(made.pushes(number) for number in range(COUNT)) >= 120
        weights = torch.cat([part.flatten() for part in load_file(made.out / "model.safetensors").values()])
        mean = disks.total() / COUNT
        assert sorted(weights.tolist()) == pytest.approx(sorted(mean.tolist()), abs=1e-5)
        assert json.loads((made.out / "ledger.json").read_text())["epsilon"] == summary["privacy"]["epsilon"]
