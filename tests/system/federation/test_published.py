"""A federation of members without rows of their own, each with its part of a published data set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tacit_client import Client, Unreachable
from tacit_client.client import ApiError

from tacit.privacy.ledger import read_chains
from tests.helpers.federation import Host, Machine
from tests.helpers.run_files import toml
from tests.helpers.servers import HOST, free_port

MEMBERS = 2


def demo(folder: Path, updates: int = 60) -> Path:
    """Write a run file of the bundled digits."""
    path = folder / "demo.toml"
    path.write_text(
        toml(
            run={"name": "demo", "updates": updates},
            data={"dataset": "digits"},
            model={"name": "logistic"},
            algorithm={"name": "mapa"},
            privacy={"noise_multiplier": 27.0, "batch": 64, "epsilon": 8.0},
            edges={"count": MEMBERS},
        )
    )
    return path


class Replicas(Machine):
    """Processes of one machine that share a folder of states, as replicas of a container do."""

    def __init__(self, folder: Path, token: Path, url: str) -> None:
        folder.mkdir()
        super().__init__(folder)
        (folder / "data").mkdir()
        (folder / "policy.toml").write_text('accept = "within"')
        self.states = folder / "states"
        self._line = [
            "join", url, "--token-file", str(token), "--states", str(self.states), "--published",
            "data", "--policy", "policy.toml", "--yes",
        ]  # fmt: skip

    def begin(self, name: str) -> None:
        """Start one more."""
        self.start(f"{name}.log", *self._line, "--health-file", f"{name}.json")

    def kill(self, number: int) -> None:
        """Kill the one that was started as this number with -9."""
        self.processes[number].kill()
        self.processes[number].wait()


@pytest.fixture
def window() -> int:
    """Return the port at which the newest run is shown."""
    return free_port()


@pytest.fixture
def host(tmp_path: Path, window: int) -> Iterator[Host]:
    """Yield a host that shows its newest run."""
    serving = Host(tmp_path / "host")
    try:
        serving.serve("--show", f"{HOST}:{window}", "--join-file", str(tmp_path / "token"))
        yield serving
    finally:
        serving.stop()


@pytest.fixture
def replicas(tmp_path: Path, host: Host) -> Iterator[Replicas]:
    """Yield a machine on which nobody has joined yet."""
    machine = Replicas(tmp_path / "site", tmp_path / "token", f"https://{HOST}:{host.port}")
    try:
        yield machine
    finally:
        machine.stop()


def state_at(window: int) -> str:
    """Return the state of the newest run, by the client of an aggregator; "": none answers."""
    with Client(f"http://{HOST}:{window}") as client:
        try:
            return client.status().state
        except (Unreachable, ApiError):
            return ""


def charged(replicas: Replicas, number: int) -> int:
    """Return the charges of a part's ledger, which lies where one of `tacit edge` does."""
    (chain,) = read_chains(replicas.states / str(number) / "ledger.db")
    chain.verify()
    return chain.releases


@pytest.mark.exhaustive
def test_a_killed_replica_is_the_same_member_and_a_run_that_is_over_is_still_shown(
    tmp_path: Path, host: Host, replicas: Replicas, window: int
) -> None:
    assert state_at(window) == ""
    for number in range(MEMBERS):
        replicas.begin(str(number))
    host.tacit("submit", demo(tmp_path, 4000), "--federation", host.place)
    host.wait_run("demo", lambda stands: stands["applied"] > 20)
    spent = charged(replicas, 0) + charged(replicas, 1)
    replicas.kill(0)
    replicas.begin("again")
    host.wait(lambda: "waits for offers" in replicas.text("again.log"))
    before = host.runs()["demo"]["applied"]
    host.wait_run("demo", lambda stands: stands["applied"] > before + 20)
    assert sorted(path.name for path in (replicas.states / "members").iterdir()) == ["0", "1"]
    assert "goes on at" in replicas.text("again.log")
    assert charged(replicas, 0) + charged(replicas, 1) > spent
    assert state_at(window) == "training"
    works = {f"edge-{number}: works in demo" for number in range(MEMBERS)}
    host.wait(lambda: replicas.tacit("health", "--file", "again.json").strip() in works)

    host.tacit("stop", "demo", "--federation", host.place)
    host.wait_run("demo", lambda stands: stands["state"] == "stopped")
    host.wait(lambda: state_at(window) == "halted")
    host.kill()
    host.serve()
    host.wait(lambda: state_at(window) == "halted")

    host.tacit("submit", demo(tmp_path), "--keep", "--federation", host.place)
    assert list(host.runs()) == ["demo"]
    host.tacit("submit", demo(tmp_path), "--name", "next", "--federation", host.place)
    ended = host.wait_run("next", lambda stands: stands["state"] == "ended")
    assert ended["applied"] == 60
    out = host.place / "runs" / "next" / "out"
    summary = json.loads((out / "summary.json").read_text())
    assert sorted(summary["privacy"]["edges"]) == ["edge-0", "edge-1"]
    for number in range(MEMBERS):
        pushes = summary["privacy"]["edges"][f"edge-{number}"]["pushes"]
        assert spent / 2 < pushes <= charged(replicas, number)  # of both runs
