"""compose.yaml with one hostile member: the others train on, every limit holds, and nobody dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from tests.e2e.stack import Stack, kill_main_process, needs_engine
from tests.helpers.servers import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.exhaustive]  # minutes, which CI has not
START, STRETCH, EDGES = 300.0, 60.0, 3
FILES = ["compose.yaml", "tests/e2e/pace.yaml", "tests/e2e/digits.yaml", "tests/e2e/hostile.yaml"]
LASTING = ("enrollment", "mosquitto", "redis", "aggregator", "edge")
HOSTILE = ("--profile", "hostile")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    needs_engine()
    stack = Stack(f"tacit-hostile-{os.getpid()}", free_port(), FILES, tmp_path)
    stack.compose("build", seconds=900.0)
    yield stack
    stack.compose(*HOSTILE, "down", "--volumes", "--remove-orphans")


def rate(stack: Stack) -> float:
    """Updates of the honest edges a second, over a stretch; every status is answered."""
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
    """Of each container: whether it was killed for its memory, and how often it was restarted."""
    return {
        service: [
            (found["State"]["OOMKilled"], found["RestartCount"]) for found in stack.inspect(service)
        ]
        for service in LASTING
    }


def test_the_others_train_on_beside_a_hostile_member_and_nothing_dies(stack: Stack) -> None:
    stack.compose("up", "--detach", "--no-build", "--scale", f"edge={EDGES}", seconds=START)
    stack.wait(lambda status: status.edges_online == EDGES, START, "edges online")
    stack.wait_for_updates(20, START)
    usual = rate(stack)
    stack.compose(*HOSTILE, "up", "--detach", "--no-build", "--no-recreate", "--no-deps", "hostile")
    stack.wait(lambda status: "edge-7" in stack.edges, START, "the member has been heard")
    attacked = rate(stack)
    print(f"honest edges: {usual:.1f} updates a second, attacked {attacked:.1f}")  # noqa: T201
    assert attacked > usual / 2
    found = restarts(stack)
    assert set().union(*found.values()) == {(False, 0)}, found
    (member,) = stack.inspect("hostile")
    assert member["State"]["Running"], stack.compose("logs", "--tail", "20", "hostile")
    # and an aggregator that dies among all that comes back with what it had.
    kill_main_process(stack.containers("aggregator")[0])
    stack.wait_for_updates(20, START)
