"""Peers of a gossip run as processes, what they have on disk, and what must be true of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tacit_services.peer.peer_state import PeerState
from torch import Tensor

from tacit import config
from tacit.privacy.accounting import Spend, epsilon_pld
from tests.helpers.processes import Deployment, Service, deployment
from tests.helpers.run_files import Layer, toml
from tests.helpers.servers import Mosquitto, mosquitto

RUN: Layer = {
    "algorithm": {"report_every": 5},
    "privacy": {"noise_multiplier": 2.0, "epsilon": 1000.0, "batch": 32, "clip": 0.2},
}
COUNT = 4
PATIENCE = 240.0  # seconds; a deadline on a busy machine: four processes import torch at once
STILL = {
    "updates": 10**9,
    "name": "adpsgd",
    "rate": 1e-30,
    "topology": "ring",
    "mechanism": "none",
    "count": COUNT,
}


@contextmanager
def run(folder: Path, **settings: Any) -> Iterator[tuple[Deployment, Mosquitto]]:
    """Yield a deployment on a broker of its own; nothing else is started yet."""
    text = toml(
        RUN,
        run={"updates": settings["updates"]},
        algorithm={
            "name": settings["name"],
            "learning_rate": settings["rate"],
            "topology": settings["topology"],
        },
        privacy={"mechanism": settings["mechanism"]},
        edges={"count": settings["count"]},
    )
    with mosquitto(folder) as broker:
        address = f"{broker.host}:{broker.port}"
        with deployment(
            folder, text, address, f"sqlite:///{folder}/store.db", "gossip"
        ) as deployed:
            yield deployed, broker


class Disks:
    """What the peers of a run have on disk."""

    def __init__(self, deployed: Deployment, count: int = COUNT) -> None:
        self._deployed, self.count = deployed, count
        self.size = config.load(deployed.file).build_model().size

    def prepare(self) -> None:
        """Give every peer a model of its own, as if they had trained apart."""
        generator = torch.Generator().manual_seed(5)
        for number in range(self.count):
            with closing(self._open(number)) as state:
                params = torch.randn(self.size, generator=generator, dtype=torch.float64)
                state.save(
                    {"params": params}, {"life": 1, "counts": {}, "links": {}, "staleness": []}
                )

    def total(self) -> Tensor:
        """Return the sum of all models, shape (d,).

        What a receiver has added, and the proposer not yet subtracted, is not counted.
        """
        states = [self._read(number) for number in range(self.count)]
        total = torch.stack([tensors["params"] for tensors, _ in states]).sum(0)
        for me, (_, values) in enumerate(states):
            for other, (proposed, is_open, _, _) in values.get("links", {}).items():
                tensors, theirs = states[int(other.removeprefix("edge-"))]
                _, _, life, answered = theirs["links"][f"edge-{me}"]
                if is_open and (life, answered) == (values["life"], proposed):
                    total -= tensors[f"delta/edge-{me}"]
        return total

    def spread(self) -> float:
        return float(
            torch.stack([self._read(number)[0]["params"] for number in range(self.count)])
            .std(0)
            .max()
        )

    def answered(self, number: int) -> int:
        """Return how many exchanges a peer has had, both ways."""
        links = self._read(number)[1].get("links", {}).values()  # sync has none
        return sum(proposed + answered for proposed, _, _, answered in links)

    def steps(self, number: int) -> int:
        return self.counts(number).get(f"edge-{number}", 0)

    def all_answered(self) -> int:
        """Return how many exchanges all peers have had."""
        return sum(self.answered(number) for number in range(self.count))

    def all_steps(self) -> int:
        """Return how many steps all peers have done."""
        return sum(self.steps(number) for number in range(self.count))

    def counts(self, number: int) -> dict[str, int]:
        """Return the steps of every peer, as far as this peer knows."""
        counts: dict[str, int] = self._read(number)[1]["counts"]
        return counts

    def begun(self, number: int) -> bool:
        """Check whether a peer has heard of another; before that its file is best not opened.

        By its log: a reader that opens an SQLite file while another makes it a WAL file locks that
        one out.
        """
        self._deployed.check_services()
        return any(
            "is here" in log.read_text()
            for log in self._deployed.folder.glob(f"peer-{number}-*.log")
        )

    def _read(self, number: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        with closing(self._open(number)) as state:
            loaded = state.load()
        assert loaded is not None
        return loaded

    def _open(self, number: int) -> PeerState:
        folder = self._deployed.folder / "identities" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        return PeerState(folder / "peer.db", "gossip")


def peer(deployed: Deployment, number: int, **more: str) -> Service:
    settings = {"TACIT_IDENTITIES": str(deployed.folder / "identities"), "TACIT_PATIENCE": "1"}
    return deployed._started(
        "peer", settings | {"TACIT_IDENTITY": str(number)} | more, f"peer-{number}"
    )


def settled(deployed: Deployment, disks: Disks, updates: int | None) -> None:
    """Check a run that has ended after `updates` steps (None: by a halt); ε is that of its charges."""
    summary = deployed.ended()
    assert updates in (None, summary["applied"])
    rate = config.load(deployed.file).sampling_rate()
    for number in range(disks.count):
        account = summary["privacy"]["edges"][f"edge-{number}"]
        events = [Spend(rate, 2.0, 1)] * deployed.pushes(
            number
        )  # one for each charge in the ledger's chain
        assert account["pushes"] == len(events) >= disks.steps(number)
        assert account["epsilon_pld"] == pytest.approx(epsilon_pld(events, 1e-5), rel=1e-6)
    assert sum(deployed.pushes(number) for number in range(disks.count)) >= summary["applied"] > 0
    assert (
        json.loads((deployed.out / "ledger.json").read_text())["epsilon"]
        == summary["privacy"]["epsilon"]
    )
    if updates is not None:  # peers that hear of a halt have gone on meanwhile
        weights = torch.cat(
            [part.flatten() for part in load_file(deployed.out / "model.safetensors").values()]
        )
        mean = disks.total() / disks.count
        assert sorted(weights.tolist()) == pytest.approx(sorted(mean.tolist()), abs=1e-5)
