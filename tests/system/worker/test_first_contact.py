"""A worker sends nothing to anybody before its rows are read: the time that takes may tell of one.

Two sockets listen where it enrols, and where its broker would be.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tacit_services.enrollment.authority import CertificateAuthority

from tests.helpers.processes import Deployment, Service, deployment
from tests.helpers.run_files import MAPA, Layer, toml
from tests.helpers.servers import HOST

READER = """
class Rows:
    def __init__(self, path):
        with open({gate!r}) as gate:  # a named pipe: until somebody opens its other end, and closes
            gate.read()

    def __len__(self):
        return 400

    def __getitem__(self, row):
        return [row / 400, 1 - row / 400], row % 2
"""
OWN: Layer = {
    "data": {
        "dataset": None,
        "kind": "python",
        "entry": "slow:Rows",
        "train": "rows",
        "rows": 400,
        "shape": [2],
        "low": 0,
        "high": 1,
        "classes": 2,
    },
    "privacy": {"batch": 8},
    "run": {"updates": 100},
    "edges": {"count": 1},
}
GOSSIP: Layer = {
    "run": {"updates": 100},
    "algorithm": {"name": "adp2sgd", "learning_rate": 0.1},
    "privacy": {"noise_multiplier": 2.0, "epsilon": 100.0, "batch": 32, "clip": 0.2},
    "edges": {"count": 3},
}
VERTICAL: Layer = {
    "run": {"updates": 100},
    "algorithm": {"name": "vafl", "learning_rate": 0.5},
    "privacy": {"mechanism": "gaussian", "noise_multiplier": 2.0, "epsilon": 100.0, "batch": 64},
    "edges": {"count": 3},
}
STAR: Layer = {"run": {"updates": 100}, "edges": {"count": 2}}


class Outside:
    """All that a worker could speak to, and the settings that say so."""

    def __init__(self, enrolment: socket.socket, broker: socket.socket, folder: Path) -> None:
        self._doors = {"enrolment": enrolment, "broker": broker}
        self.broker = "{}:{}".format(*broker.getsockname())
        (folder / "token").write_text("a-token")
        ca = CertificateAuthority.create(folder / "pki").folder / "ca.crt"
        self.enrolling = {
            "TACIT_ENROLL_URL": "https://{}:{}".format(*enrolment.getsockname()),
            "TACIT_TLS_CA": str(ca),
            "TACIT_ENROLL_TOKEN_FILE": str(folder / "token"),
            "TACIT_CONNECT_TIMEOUT": "2",
        }

    def called(self) -> list[str]:
        """Return who has been connected to since the last call; the system has answered for them."""
        return [name for name, door in self._doors.items() if _accepted(door)]


def _accepted(door: socket.socket) -> bool:
    door.setblocking(False)
    try:
        door.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@contextmanager
def outside(folder: Path, text: str) -> Iterator[tuple[Outside, Deployment]]:
    """Yield two doors, and a deployment in front of them; nothing is started yet."""
    with socket.create_server((HOST, 0)) as enrolment, socket.create_server((HOST, 0)) as broker:
        around = Outside(enrolment, broker, folder)
        with deployment(folder, text, around.broker, "memory:", "contact") as run:
            yield around, run


def slow(folder: Path) -> tuple[str, Path]:
    """Return a run file whose rows come through a gate, and the gate."""
    gate = folder / "gate"
    os.mkfifo(gate)
    (folder / "slow.py").write_text(READER.format(gate=str(gate)))
    (folder / "rows").write_text("")
    return toml(MAPA, OWN), gate


def next_reading(gate: Path, edge: Service, around: Outside) -> tuple[int | None, list[str]]:
    """Return the gate's other end once the edge stands before it, or else whom it has called.

    Raise AssertionError where it has ended.
    """
    descriptors: list[int] = []
    called: list[str] = []
    waiting = threading.Thread(
        target=lambda: descriptors.append(os.open(gate, os.O_WRONLY)), daemon=True
    )
    waiting.start()
    while waiting.is_alive():
        waiting.join(0.1)
        assert edge.process is not None
        called += around.called()
        if waiting.is_alive() and (called or edge.process.poll() is not None):
            os.close(os.open(gate, os.O_RDONLY | os.O_NONBLOCK))
            assert called, edge.log
            return None, called
    return descriptors[0], called


@pytest.mark.parametrize("first", ["enrolment", "broker"])
def test_nobody_hears_of_an_edge_before_its_rows_are_read(tmp_path: Path, first: str) -> None:
    text, gate = slow(tmp_path)
    with outside(tmp_path, text) as (around, run):
        # Given an edge that is about to read its rows,
        more = around.enrolling if first == "enrolment" else {}
        edge = run.edge(0, XDG_DATA_HOME=str(tmp_path / "home"), **more)
        # when they are not yet there, then nobody was called; once they are, the first one is.
        descriptor, called = next_reading(gate, edge, around)
        assert descriptor is not None
        while descriptor is not None:  # for their sketch, and to keep them
            assert called + around.called() == []
            os.close(descriptor)
            descriptor, called = next_reading(gate, edge, around)
        assert called == [first]
        assert "pushes left" in edge.log


@pytest.mark.parametrize(
    ("command", "layers"), [("edge", [MAPA, STAR]), ("peer", [GOSSIP]), ("party", [VERTICAL])]
)
def test_nobody_hears_of_rows_that_cannot_be_read(
    tmp_path: Path, command: str, layers: list[Layer]
) -> None:
    text = toml(*layers, data={"dataset": "credit-default"})
    with outside(tmp_path, text) as (around, run):
        worker = run.edge(0, command, TACIT_DATA=str(tmp_path), **around.enrolling)
        assert worker.wait() != 0
        assert "credit-default" in worker.log
        assert around.called() == []


def test_a_token_that_is_missing_is_named_before_rows_are_read(tmp_path: Path) -> None:
    text, _ = slow(tmp_path)  # nobody opens the gate
    with outside(tmp_path, text) as (around, run):
        (tmp_path / "token").unlink()
        edge = run.edge(0, XDG_DATA_HOME=str(tmp_path / "home"), **around.enrolling)
        assert edge.wait() == 2
        assert "TACIT_ENROLL_TOKEN_FILE" in edge.log
        assert around.called() == []
