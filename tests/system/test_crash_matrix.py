"""SIGKILL of an edge at every point of a release, and what somebody at the broker sees: never more
than was paid for.

One seed each in `make test-all`; `make chaos` (TACIT_CHAOS_SEEDS=50) runs the whole matrix. A
seed says at which release the edge dies, and whether its successor dies at the same point, too.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pytest

from tacit import config
from tacit.config import RunFile
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import read_chains
from tacit.privacy.ledger.chain import Chain
from tacit.protocol import wire
from tests.helpers.crash_edge import POINTS, Forks
from tests.helpers.processes import PATIENCE, Watcher
from tests.helpers.rig import Rig
from tests.helpers.run_files import Layer, run_file, toml
from tests.helpers.servers import Mosquitto, mosquitto, wait_for

CAP = 4  # releases that the budget allows
SEEDS = int(os.environ.get("TACIT_CHAOS_SEEDS", "1"))
RUN: Layer = {
    "run": {"updates": 100000, "snapshot_every": 100000},
    "algorithm": {"name": "mapa", "smoothness": 1.0, "deviation": 1.0},
    "privacy": {"batch": 16, "noise_multiplier": 2.0, "clip": 1.0},
}
totals: Counter[str] = Counter()

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@lru_cache
def cost(rate: float, multiplier: float, count: int) -> float:
    return epsilon_pld([Spend(rate, multiplier, count)], 1e-5)


def run_text() -> str:
    """Return a run whose budget is CAP releases and a half."""
    plan = run_file(RUN, edges={"count": len(POINTS)}).plan(0)
    rate, z = plan.sampling_rate, plan.noise_multiplier
    epsilon = (cost(rate, z, CAP) + cost(rate, z, CAP + 1)) / 2
    return toml(RUN, privacy={"epsilon": epsilon}, edges={"count": len(POINTS)})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    new_forks = Forks(tmp_path_factory.mktemp("forks") / "log")
    yield new_forks
    new_forks.close()
    print("crash matrix:", dict(totals))  # noqa: T201  (shown by make chaos)


@dataclass
class Scene:
    """One run with an edge for every point."""

    forks: Forks
    folder: Path
    rig: Rig
    watcher: Watcher
    kills: Counter[int] = field(default_factory=Counter)
    died_at: dict[int, int] = field(default_factory=dict)  # the release of an edge's first death

    def edge(self, number: int, point: str = "", release: int = 0) -> int:
        """Start one; its pid."""
        settings = {
            "run_file": str(self.folder / "run.toml"),
            "run_id": self.rig.run_id,
            "broker": self.rig.broker,
            "identities": str(self.folder / "identities"),
            "identity": number,
            "patience": 2.0,
        }
        return self.forks.start(settings, self.folder / f"edge-{number}.log", point, release)

    def ended(self, pid: int) -> int:
        """Return the exit status of an edge, once it has ended."""
        return self.forks.wait(pid, PATIENCE)

    def crash(self, number: int, point: str, release: int) -> None:
        """Start an edge that dies at the point, and wait for that."""
        assert self.ended(self.edge(number, point, release)) == -signal.SIGKILL, self.log(number)
        self.kills[number] += 1
        self.died_at.setdefault(number, release)

    def exhaust(self, number: int, times: int) -> None:
        """Run an edge until it retires for the `times`-th time."""
        pid = self.edge(number)
        wait_for(lambda: len(self.seen(number, "retired")) == times, PATIENCE)
        os.kill(pid, signal.SIGTERM)
        assert self.ended(pid) == 0, self.log(number)

    def seen(self, number: int, kind: str) -> dict[int, set[bytes]]:
        """Return the payloads of every message of this kind from this edge on the wire, by number."""
        payload_sets = {}
        with self.watcher._lock:
            copies = list(self.watcher.copies.items())
        for (edge, seq, _), payloads in copies:
            envelope = wire.Assembler(1 << 20).add(payloads[0])
            assert envelope is not None
            if edge == f"edge-{number}" and wire.decode(envelope).meta.WhichOneof("kind") == kind:
                payload_sets[seq] = set(payloads)
        return payload_sets

    def log(self, number: int) -> str:
        return (self.folder / f"edge-{number}.log").read_text()


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, broker: Mosquitto, forks: Forks, tmp_path: Path
) -> Iterator[Scene]:
    text = run_text()
    (tmp_path / "run.toml").write_text(text)
    run: RunFile = config.parse(text, "test")
    address, run_id = (
        f"{broker.host}:{broker.port}",
        f"crash-{request.node.callspec.params['seed']}",
    )
    watcher = Watcher(address, run_id)
    watcher.connection.start(PATIENCE)
    rig = Rig(run, address, run_id)
    rig.serve()
    yield Scene(forks, tmp_path, rig, watcher)
    rig.close()
    watcher.connection.stop()
    assert not rig.failures


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_an_edge_dies_of_it_never_releases_more_than_its_ledger_says(
    scene: Scene, seed: int
) -> None:
    for number, point in enumerate(POINTS):
        # Given an edge that is killed at this point, and sometimes its successor, too,
        scene.crash(number, point, 1 + (seed + number) % CAP)
        remaining = CAP - ledger(scene, number).count
        if (seed // CAP) % 2 and remaining:
            scene.crash(number, point, 1)
        # when others take its identity until the budget is spent, and after that,
        scene.exhaust(number, 1)
        scene.exhaust(number, 2)
        # then this is what was on the wire:
        check(scene, number, point)


def ledger(scene: Scene, number: int) -> Chain:
    (chain,) = read_chains(scene.folder / "identities" / str(number) / "ledger.db")
    chain.verify()
    return chain


def lost_by(point: str, release: int) -> int:
    """Return how many releases are paid for and never seen, after one death at `point`.

    `release` is the release in which it dies.
    """
    if point == "before_begin":  # what was charged with the message before it
        return int(release > 1)
    stored = point in ("after_commit", "after_publish", "on_receipt")
    return int(release < CAP) if stored else 1  # the one after it, or itself


def check(scene: Scene, number: int, point: str) -> None:
    chain, updates, kills = ledger(scene, number), scene.seen(number, "update"), scene.kills[number]
    distinct = {
        hashlib.sha256(payload).digest() for payloads in updates.values() for payload in payloads
    }
    # A retry is the same bytes, and no two updates are.
    assert all(len(payloads) == 1 for payloads in updates.values()), point
    assert len(distinct) == len(updates)
    # What was seen is paid for, with at most one task lost for every death.
    (row,) = chain.history()
    paid = cost(row.sampling_rate, row.noise_multiplier, row.count)
    epsilon_sent = cost(row.sampling_rate, row.noise_multiplier, len(distinct)) if distinct else 0.0
    assert row.count == chain.count
    assert (
        epsilon_sent <= paid <= cost(row.sampling_rate, row.noise_multiplier, len(distinct) + kills)
    )
    if kills == 1:
        assert chain.count - len(distinct) == lost_by(point, scene.died_at[number])
    # The budget was spent, not passed, and after the last word there was no update.
    assert chain.count == CAP
    assert max(updates, default=0) < min(scene.seen(number, "retired"))
    # And the model has each of them at most once.
    with scene.rig.live.lock:
        record = scene.rig.live.role.edges[f"edge-{number}"]
        assert record.updates <= len(distinct)
        assert (record.charged.count, record.charged.head) == (chain.count, chain.head)
    copies = sum(scene.watcher.sent(f"edge-{number}", seq) for seq in updates)
    lost = chain.count - len(distinct)
    totals.update(
        cases=1, kills=kills, charges=chain.count, updates=len(distinct), lost=lost, copies=copies
    )
