"""Own rows that have spent their budget: taken down and up again, as the README says, they have
nothing left.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, needs_engine
from tests.helpers.run_files import toml
from tests.helpers.servers import free_port

pytestmark = pytest.mark.e2e
START = 180.0  # seconds for processes to start and be counted
END = 240.0  # for the run, and the ten seconds until it is known that nobody can push
EDGES = 2
PUSHES = 25
UP = ("up", "--detach", "--no-build", "--scale", f"lone-edge={EDGES}", "lone-edge")


def project(folder: Path) -> Path:
    """Write a project of own rows, which the containers' user can read."""
    clinic = folder / "clinic"
    clinic.mkdir(parents=True)
    chance = random.Random(1)
    lines = ["age,bmi,outcome"]
    for _ in range(1200):
        age = chance.randint(20, 90)
        bmi = chance.uniform(16, 42)
        lines.append(f"{age},{bmi:.2f},{'ill' if age + bmi > 85 else 'well'}")
    (clinic / "train.csv").write_text("\n".join(lines) + "\n")
    columns = {
        "age": {"low": 0, "high": 110},
        "bmi": {"low": 10, "high": 60},
        "outcome": {"values": ["ill", "well"]},
    }
    text = toml(
        run={"updates": 4 * EDGES * PUSHES},  # more than the budget buys
        data={
            "dataset": None,
            "kind": "table",
            "train": "train.csv",
            "target": "outcome",
            "rows": 500,
            "columns": columns,
        },
        model={"name": "logistic"},
        algorithm={"name": "mapa"},
        privacy={"epsilon": 4.0, "pushes": PUSHES, "batch": 50, "clip": 1.0},
        edges={"count": EDGES},
    )
    (clinic / "run.toml").write_text(text)
    for path in (folder, clinic):
        path.chmod(0o755)
    return folder


def of_run(name: str, port: int, data: Path) -> Stack:
    """Return the project's stack in the run called `name`; its volumes are the same."""
    more = {
        "COMPOSE_PROFILES": "alone",
        "TACIT_RUN_FILE": "/data/clinic/run.toml",
        "TACIT_RUN_ID": name,
    }
    return Stack(f"tacit-spent-{os.getpid()}", port, ["compose.yaml"], data, more)


@pytest.fixture
def stacks(tmp_path: Path) -> Iterator[tuple[Stack, Stack]]:
    """Yield the stack in a first and in a second run, built; all that is its own is taken down."""
    needs_engine()
    port, data = free_port(), project(tmp_path / "mine")
    first, second = of_run("first", port, data), of_run("second", port, data)
    first.compose("build", seconds=900.0)
    yield first, second
    first.compose("--profile", "*", "down", "--volumes", "--remove-orphans")


def test_rows_that_have_spent_all_have_nothing_left_after_down_and_up(
    stacks: tuple[Stack, Stack],
) -> None:
    # given: a run that has spent what the rows have
    first, second = stacks
    first.compose(*UP, seconds=START)
    first.wait(lambda status: status.state == "halted", START + END, "the budget's end")
    spent = {name: edge.epsilon_pld for name, edge in first.edges.items()}
    pushes = first.pushes()
    assert sorted(spent) == [f"edge-{number}" for number in range(EDGES)]
    assert all(epsilon is not None and 3.9 < epsilon <= 4.0 for epsilon in spent.values())

    # when
    first.make("down")
    second.compose(*UP, seconds=START)
    end = second.wait(lambda status: status.state == "halted", START + END, "that nobody can push")

    # expected: nothing was left, and nothing more was spent
    assert end.applied == 0
    assert second.pushes() == pushes
    assert {name: edge.epsilon_pld for name, edge in second.edges.items()} == spent
    logs = second.compose("logs", "--no-log-prefix", "lone-edge")
    assert logs.count("0 pushes left") >= EDGES
