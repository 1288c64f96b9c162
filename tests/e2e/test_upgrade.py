"""tacit 0.2 by its own compose.yaml and images, stopped in mid-run.

Today's images go on with its volumes: with the run in the profile `alone`, with its ledgers everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit import config
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.ledger import read_chains
from tests.e2e.stack import ROOT, Stack, docker, needs_engine
from tests.helpers.older import tree
from tests.helpers.processes import Deployment, check, journalled, refold
from tests.helpers.servers import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.exhaustive]  # it builds the older images, too
HERE = Path(__file__).parent
START = 180.0  # seconds for processes to start and be counted
END = 300.0  # for the rest of the run
EDGES = range(2)
UP = ("up", "--detach", "--no-build", "--scale")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Yield 0.2's stack, built beside today's.

    All that is its own is taken down, the older images included.
    """
    needs_engine()
    older, overlay = tree(tmp_path / "older"), str(HERE / "upgrade.yaml")
    more = {"E2E_RUN_FILE": str(HERE / "upgrade.toml"), "COMPOSE_PROFILES": "alone"}
    no_data = tmp_path / "data"
    no_data.mkdir()  # the containers' user can read it, as it cannot read tmp_path
    new_stack = Stack(
        f"tacit-upgrade-{os.getpid()}", free_port(), ["compose.yaml", overlay], no_data, more
    )
    new_stack.compose("build", seconds=900.0)
    new_stack.of(older, ["compose.yaml", overlay, str(HERE / "older.yaml")])
    new_stack.compose("build", seconds=900.0)
    yield new_stack
    new_stack.compose("down", "--volumes", "--remove-orphans")
    docker("image", "rm", "tacit-e2e-older-aggregator", "tacit-e2e-older-edge")


def test_todays_images_go_on_with_the_volumes_of_0_2(stack: Stack, tmp_path: Path) -> None:
    stack.compose(*UP, f"edge={len(EDGES)}", seconds=START)
    stack.wait(lambda status: status.edges_online == len(EDGES), START, "0.2's edges online")
    stack.wait_for_updates(200, START)
    stack.compose("stop", seconds=120.0)
    before = left(stack, "edge", tmp_path / "before")
    assert not (before.out / "summary.json").exists()

    stack.of(ROOT, ["compose.yaml", str(HERE / "upgrade.yaml"), str(HERE / "alone.yaml")])
    stack.compose(*UP, f"lone-edge={len(EDGES)}", "lone-edge", seconds=START)
    end = stack.wait(lambda status: status.state == "finished", END, "the end of the run")
    stack.wait(lambda _: settled(stack), START, "every edge to exit, and the summary")
    after = left(stack, "lone-edge", tmp_path / "after")

    assert end.applied == end.target
    assert end.refusals == 0
    goes_on(before, after)
    in_a_federation(stack, stack.pushes())


def in_a_federation(stack: Stack, spent: dict[str, int]) -> None:
    """Check that the federation's members go on with the ledgers of the edges of their numbers."""
    stack.make("down")
    stack.of(ROOT, ["compose.yaml", "tests/e2e/run-file.yaml", "tests/e2e/pace.yaml"])
    stack.expect_another_run()
    stack.compose(*UP, f"edge={len(EDGES)}", "host", "submit", "edge", seconds=START)

    def counted_on() -> bool:
        return all(stack.pushes().get(edge, 0) > pushes for edge, pushes in spent.items())

    stack.wait(lambda _: counted_on(), START, f"pushes beyond {spent}")
    assert stack.edges.keys() == spent.keys()


def settled(stack: Stack) -> bool:
    """Check whether the edges have exited, as after a halt, and all results are on disk."""
    states = [
        (edge["State"]["Status"], edge["State"]["ExitCode"]) for edge in stack.inspect("lone-edge")
    ]
    out = stack.compose("exec", "-T", "aggregator", "ls", "/var/lib/tacit/out/run")
    return states == [("exited", 0)] * len(EDGES) and "summary.json" in out.split()


def left(stack: Stack, service: str, folder: Path) -> Deployment:
    """Copy what aggregator and edges have on their volumes now."""
    stack.compose("cp", "aggregator:/var/lib/tacit", str(folder))
    stack.compose("cp", f"{service}:/var/lib/tacit/identities", str(folder))
    deployment = Deployment(folder, (HERE / "upgrade.toml").read_text(), "", "", "run")
    if (deployment.out / "run").is_dir():  # 0.2 wrote into the folder above
        deployment.out = deployment.out / "run"
    return deployment


def goes_on(before: Deployment, after: Deployment) -> None:
    """Check that what 0.2 has accepted is the beginning, and the model the fold of all of it.

    Every release is charged, once.
    """
    summary, entries, first = after.summary(), journalled(after), journalled(before)
    assert entries[: len(first)] == first
    assert 200 <= len(first) < len(entries)
    check(after, summary, entries, EDGES)
    _, accepted = refold(config.load(after.file), [entry.payload for entry in entries])
    for number in EDGES:
        account = summary["privacy"]["edges"][f"edge-{number}"]
        assert before.pushes(number) < account["pushes"] <= after.pushes(number)
        assert after.pushes(number) - accepted[f"edge-{number}"] in (
            0,
            1,
        )  # the one that met the end of the run
        counted_on(after, number, account)


def counted_on(run: Deployment, number: int, account: dict[str, Any]) -> None:
    """Check that ε is that of all releases, 0.2's and those since; the ledger's chain is whole."""
    (chain,) = read_chains(run.folder / "identities" / str(number) / "ledger.db")
    chain.verify()
    (each,) = chain.history()  # they are alike
    spent = [replace(each, count=account["pushes"])]
    assert account["epsilon_pld"] == pytest.approx(epsilon_pld(spent, account["delta"]), rel=1e-9)
