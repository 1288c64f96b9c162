"""compose.yaml's profiles `vertical` and `gossip`.

Each trains, rides out its broker's death, and ends by itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, docker, kill_main_process, needs_engine
from tests.helpers.servers import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.exhaustive]  # a minute and a half that CI has not
START = 180.0  # seconds for processes to start and be counted
END = 180.0  # for the rest of the run
WORKERS = 4


@pytest.fixture
def stack(request: pytest.FixtureRequest, data_root: Path | None) -> Iterator[Stack]:
    """Yield the stack with one profile, not started; all that is its own is taken down."""
    needs_engine()
    profile = request.param
    more = {"COMPOSE_PROFILES": profile, "E2E_RUN_FILE": f"{profile}.toml"}
    files = ["compose.yaml", "tests/e2e/profiles.yaml"]
    new_stack = Stack(f"tacit-{profile}-{os.getpid()}", free_port(), files, data_root, more)
    new_stack.compose("build", seconds=900.0)
    yield new_stack
    new_stack.compose("down", "--volumes", "--remove-orphans")


@pytest.mark.parametrize(
    ("stack", "service", "accuracy"),
    [("vertical", "party", 0.85), ("gossip", "peer", 0.8)],
    indirect=["stack"],
)
def test_a_profile_trains_through_the_death_of_its_broker_to_its_own_end(
    stack: Stack, service: str, accuracy: float
) -> None:
    scale = ("--scale", f"{service}={WORKERS}")
    stack.compose("up", "--detach", "--no-build", *scale, service, seconds=START)
    stack.wait(lambda status: status.edges_online == WORKERS, START, f"{WORKERS} online")
    stack.wait_for_updates(50, START)
    [broker] = stack.containers("mosquitto")

    kill_main_process(broker)
    stack.wait_for_updates(100, END)
    end = stack.wait(lambda status: status.state == "finished", END, "the end of the run")
    stack.wait(
        lambda status: (status.test_accuracy or 0.0) >= accuracy, 30.0, f"an accuracy of {accuracy}"
    )

    assert json.loads(docker("inspect", broker))[0]["RestartCount"] == 1
    assert end.applied == end.target
    assert sorted(stack.edges) == [f"edge-{number}" for number in range(WORKERS)]
    for edge in stack.edges.values():
        assert edge.epsilon_pld is None or edge.budget is None or edge.epsilon_pld <= edge.budget

    def states() -> set[tuple[str, int]]:
        return {
            (container["State"]["Status"], container["State"]["ExitCode"])
            for container in stack.inspect(service)
        }

    stack.wait(
        lambda _: {status for status, _ in states()} == {"exited"}, 60.0, f"every {service} to exit"
    )
    assert states() == {("exited", 0)}
    assert len(stack.containers(service)) == WORKERS
