"""Deadlines over a real broker.

Nobody waits for the dead, and what a timer did is replayed from the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tacit_services.aggregator import entries
from tacit_services.journal.store import open_store

from tacit.config import RunFile
from tacit.protocol.messages import Deadline
from tests.golden.harness import sha256
from tests.helpers.rig import Rig
from tests.helpers.run_files import Layer
from tests.helpers.run_files import run_file as made
from tests.helpers.servers import Mosquitto, mosquitto, wait_for

RUN: Layer = {
    "run": {"snapshot_every": 1000000},
    "privacy": {"noise_multiplier": 1.0, "clip": 1.0, "batch": 16, "epsilon": 100.0},
    "edges": {"count": 3},
}


def run_file(name: str, section: str, updates: int = 6) -> RunFile:
    return made(RUN, "[algorithm]\n" + section, run={"updates": updates}, algorithm={"name": name})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as running:
        yield running


@pytest.fixture
def rigged(broker: Mosquitto, tmp_path: Path) -> Iterator[Callable[[RunFile], Rig]]:
    rigs: list[Rig] = []

    def build(run: RunFile) -> Rig:
        store = open_store(f"sqlite:///{tmp_path / 'store.db'}", "deadline")
        rigs.append(Rig(run, f"{broker.host}:{broker.port}", "deadline", store))
        return rigs[0]

    yield build
    for rig in rigs:
        rig.close()
        rig.store.close()


@pytest.mark.parametrize("name", ["fedavg", "dp-pasgd"])
def test_a_round_of_three_goes_on_with_two(
    rigged: Callable[[RunFile], Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Given three edges that are expected, of which one never comes, and a quorum of two,
    steps = "tau = 2" if name == "dp-pasgd" else "steps_min = 2"
    rig = rigged(run_file(name, f"{steps}\ndeadline_s = 0.2\nquorum = 0.6"))
    monkeypatch.setattr(rig.driver, "save", lambda: None)  # no snapshot trims the journal
    rig.serve()
    rig.edge(0, tmp_path)
    rig.edge(1, tmp_path)
    # then the run ends all the same,
    role = rig.finished()
    assert (role.version, role.halt_reason) == (6, "all updates applied")
    # and its journal, deadlines included, folds to the same bits.
    again = rig.assembled(rig.store)
    again.driver.recover()
    assert sha256(again.run.role) == sha256(role)
    read = [
        entries.read(record.payload, rig.schema, rig.model.size)
        for record in rig.store.read(0, 10_000)
    ]
    assert any(isinstance(message, Deadline) for message in read)
    assert again.run.role.state()[1] == role.state()[1]


def test_the_operator_begins_the_first_round_by_an_entry_of_the_journal(
    rigged: Callable[[RunFile], Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given rounds that are to wait ten minutes for three edges, of which two are there,
    run = made(
        RUN,
        "[algorithm]\nsteps_min = 2\ndeadline_s = 600\nquorum = 0.6",
        run={"updates": 6},
        algorithm={"name": "fedavg"},
        edges={"wait": 600.0},
    )
    rig = rigged(run)
    monkeypatch.setattr(rig.driver, "save", lambda: None)  # no snapshot trims the journal

    def begin() -> None:
        if len(rig.live.role.edges) == 2 and rig.live.role.waits_to_begin:
            assert rig.driver.begin()

    rig.idle = begin
    rig.serve()
    rig.edge(0, tmp_path)
    rig.edge(1, tmp_path)
    # when the operator begins, then the run trains to its end, and a replay begins there, too.
    role = rig.finished()
    assert (role.version, role.halt_reason) == (6, "all updates applied")
    again = rig.assembled(rig.store)
    again.driver.recover()
    assert sha256(again.run.role) == sha256(role)


def test_the_slot_of_a_silent_edge_is_given_to_another(
    rigged: Callable[[RunFile], Rig], tmp_path: Path
) -> None:
    # Given FedAsync with one task at a time, which edge-0 takes and never answers,
    rig = rigged(run_file("fedasync", "steps_min = 2\nconcurrency = 1\ndeadline_s = 0.2"))
    rig.serve()
    rig.edge(0, tmp_path, deaf=lambda inbound: "/down/" in inbound.topic)
    wait_for(lambda: "edge-0" in rig.live.role.edges)
    # then the others are not kept waiting.
    rig.edge(1, tmp_path)
    wait_for(lambda: bool(rig.failures) or rig.live.role.halted)
    assert not rig.failures
    assert rig.live.role.edges["edge-1"].updates == 6
    assert rig.live.role.edges["edge-0"].updates == 0
