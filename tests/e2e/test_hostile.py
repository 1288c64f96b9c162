"""compose.yaml, profile `alone`, with one hostile member: the others train on, every limit holds, and nobody dies but
who is killed; then nothing is lost, and nothing is there twice.

The tests are steps of one story, in order; each begins where the one before ended.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from tacit_services.cli.replay import fold
from tacit_services.journal import journal_file

from tacit.protocol import wire
from tests.e2e.stack import Stack, kill_main_process, needs_engine
from tests.helpers.servers import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.exhaustive]  # minutes, which CI has not
START, STRETCH, EDGES = 300.0, 60.0, 3
FILES = ["compose.yaml", "tests/e2e/alone.yaml", "tests/e2e/hostile.yaml"]
MORE = {"COMPOSE_PROFILES": "alone", "E2E_RUN_FILE": str(Path(__file__).parent / "digits.toml")}
LASTING = ("enrollment", "mosquitto", "redis", "aggregator", "lone-edge")
MORTAL = ("mosquitto", "redis", "aggregator", "lone-edge")
DONE = ("exited", 0)
HOSTILE = ("--profile", "alone", "--profile", "hostile")  # a flag hides COMPOSE_PROFILES


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    needs_engine()
    no_data = tmp_path_factory.mktemp("data")
    stack = Stack(f"tacit-hostile-{os.getpid()}", free_port(), FILES, no_data, MORE)
    stack.compose("build", seconds=900.0)
    yield stack
    stack.compose(*HOSTILE, "down", "--volumes", "--remove-orphans")


def rate(stack: Stack) -> float:
    """Return the honest edges' updates a second, over a stretch; every status is answered."""
    began, before = time.monotonic(), honest(stack)
    while time.monotonic() - began < STRETCH:
        Event().wait(2.0)  # between two looks
        honest(stack)
    return (honest(stack) - before) / (time.monotonic() - began)


def honest(stack: Stack) -> int:
    status = stack.wait(lambda status: status.state == "training", 30.0, "an answer")
    assert status.applied > 0
    return sum(edge.updates for edge in stack.edges.values() if edge.id != "edge-7")


def restarts(stack: Stack) -> dict[str, list[tuple[bool, int]]]:
    """Return of each container whether it ran out of memory, and how often it was restarted."""
    return {
        service: [
            (container["State"]["OOMKilled"], container["RestartCount"])
            for container in stack.inspect(service)
        ]
        for service in LASTING
    }


def test_the_others_train_on_beside_a_hostile_member_and_nothing_dies(stack: Stack) -> None:
    up = ("up", "--detach", "--no-build", "--scale", f"lone-edge={EDGES}", "lone-edge")
    stack.compose(*up, seconds=START)
    stack.wait(lambda status: status.edges_online == EDGES, START, "edges online")
    stack.wait_for_updates(20, START)
    usual = rate(stack)
    stack.compose(*HOSTILE, "up", "--detach", "--no-build", "--no-recreate", "--no-deps", "hostile")
    stack.wait(lambda status: "edge-7" in stack.edges, START, "the member has been heard")
    attacked = rate(stack)
    print(f"honest edges: {usual:.1f} updates a second, attacked {attacked:.1f}")  # noqa: T201
    assert attacked > usual / 2
    container_states = restarts(stack)
    assert set().union(*container_states.values()) == {(False, 0)}, container_states
    (member,) = stack.inspect("hostile")
    assert member["State"]["Running"], stack.compose("logs", "--tail", "20", "hostile")


@pytest.mark.parametrize("service", MORTAL)
def test_whoever_is_killed_comes_back_with_what_it_had(stack: Stack, service: str) -> None:
    container = stack.containers(service)[0]
    kill_main_process(container)
    stack.wait(lambda _: restarts(stack)[service][0][1] > 0, START, f"{service} restarted")
    stack.wait_for_updates(20, START)
    kill_main_process(container)  # once more, right after it was at work again
    stack.wait(lambda _: restarts(stack)[service][0][1] > 1, START, f"{service} restarted again")
    stack.wait_for_updates(20, START)
    stack.wait(lambda status: status.edges_online >= EDGES, START, "edges online")


def test_all_at_once(stack: Stack) -> None:
    for service in MORTAL:
        kill_main_process(stack.containers(service)[0])
    stack.wait_for_updates(20, START)
    stack.wait(lambda status: status.edges_online >= EDGES, START, "edges online")


def test_nothing_is_lost_and_nothing_is_there_twice(stack: Stack, tmp_path: Path) -> None:
    (member,) = stack.inspect("hostile")
    assert member["State"]["Running"], stack.compose("logs", "--tail", "20", "hostile")
    stack.compose("exec", "-T", "aggregator", "tacit", "halt")
    stack.wait(lambda status: status.state == "halted", 60.0, "the end of the run")
    stack.wait(lambda _: not running(stack), 60.0, "every edge to exit")
    stack.compose("cp", "aggregator:/var/lib/tacit", str(tmp_path / "server"))
    stack.compose("cp", "lone-edge:/var/lib/tacit/identities", str(tmp_path / "identities"))

    # The journal has every number once, and folds to the model that is reported.
    journal = tmp_path / "server" / "run.journal"
    summary = json.loads((tmp_path / "server" / "out" / "run" / "summary.json").read_text())
    accepted, updates = entries(journal)
    replayed = fold(journal)
    assert replayed.model_sha256 == summary["model_sha256"]
    assert replayed.version == summary["applied"]
    # All that an honest edge has a receipt for is there, and what was released was paid for.
    for number in range(EDGES):
        edge = f"edge-{number}"
        receipt, charged = ledger(tmp_path / "identities" / str(number) / "ledger.db")
        assert receipt > 0
        assert accepted[edge][:receipt] == list(range(1, receipt + 1)), edge
        assert updates[edge] <= summary["privacy"]["edges"][edge]["pushes"] <= charged
    print(f"{replayed.records} messages, {replayed.version} applied, {dict(updates)}")  # noqa: T201


def running(stack: Stack) -> list[str]:
    """Return the states of the honest edges' containers that have not ended well."""
    states = [edge["State"] for edge in stack.inspect("lone-edge")]
    return [state["Status"] for state in states if (state["Status"], state["ExitCode"]) != DONE]


def entries(journal: Path) -> tuple[dict[str, list[int]], Counter[str]]:
    """Return of every edge the numbers in the journal, in order, and its count of updates."""
    numbers: dict[str, list[int]] = {}
    updates = Counter[str]()
    with journal_file.open_journal(journal) as file:
        records = list(journal_file.JournalReader(file, "journal"))
    assert [record.position for record in records] == list(range(1, len(records) + 1))
    for record in records:
        meta = wire.decode(record.payload).meta
        numbers.setdefault(meta.edge, []).append(meta.seq)
        updates[meta.edge] += meta.HasField("update")
    return numbers, updates


def ledger(path: Path) -> tuple[int, int]:
    """Return the newest number that an identity has a receipt for, and its count of charges."""
    with closing(sqlite3.connect(path)) as db:
        ((receipt,),) = db.execute("SELECT receipt FROM sender WHERE run = 'run'")
        ((charged,),) = db.execute("SELECT count FROM chain")
    return int(receipt), int(charged)
