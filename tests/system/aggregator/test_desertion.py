"""The end of a run in which nobody is left who could push."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tacit_services.aggregator.desertion import (
    ALL_RETIRED_GRACE,
    FEW_EDGES_GRACE,
    LOOK_SECONDS,
    Desertion,
)
from tacit_services.aggregator.reading import RunReading

from tests.helpers.rest import Rig

GRACE = 300.0  # edges.grace


class Clock:
    """A test's time."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def retire(rig: Rig, name: str) -> None:
    rig.role.edges[name] = replace(rig.role.edges[name], retired="its budget is spent")


@pytest.mark.parametrize(("edges", "grace"), [(1, FEW_EDGES_GRACE), (3, ALL_RETIRED_GRACE)])
def test_a_run_of_retired_edges_ends_after_its_grace(
    tmp_path: Path, edges: int, grace: float
) -> None:
    rig, clock = Rig(tmp_path), Clock()
    desertion = Desertion(rig.reading, rig.run.edges.count, GRACE, clock)
    for number in range(edges):
        rig.hello(f"edge-{number}")
    assert desertion.reason() is None
    for number in range(edges):
        retire(rig, f"edge-{number}")
    clock.now += LOOK_SECONDS
    assert desertion.reason() is None
    clock.now += grace
    assert desertion.reason() is None
    clock.now += LOOK_SECONDS
    assert desertion.reason() == "the budget of every edge online is spent"


def test_one_that_joins_meanwhile_ends_the_wait(tmp_path: Path) -> None:
    rig, clock = Rig(tmp_path), Clock()
    desertion = Desertion(rig.reading, rig.run.edges.count, GRACE, clock)
    rig.hello("edge-0")
    retire(rig, "edge-0")
    assert desertion.reason() is None
    rig.hello("edge-1")
    clock.now += FEW_EDGES_GRACE - LOOK_SECONDS
    assert desertion.reason() is None
    retire(rig, "edge-1")
    clock.now += 2 * LOOK_SECONDS
    assert desertion.reason() is None  # the grace begins anew
    clock.now += FEW_EDGES_GRACE + LOOK_SECONDS
    assert desertion.reason() is not None


@pytest.mark.parametrize("presence", ["offline", "left"])
def test_one_that_is_away_and_has_budget_is_waited_for(
    tmp_path: Path, presence: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Given three edges, of which two have spent their budgets,
    rig, clock = Rig(tmp_path), Clock()
    desertion = Desertion(rig.reading, rig.run.edges.count, GRACE, clock)
    for number in range(3):
        rig.hello(f"edge-{number}")
    retire(rig, "edge-0")
    retire(rig, "edge-1")
    # when the machine of the third goes down,
    rig.live.presence["edge-2"] = presence
    assert desertion.reason() is None
    assert "edge-2 is away, and has budget" in caplog.text
    # then it is waited for longer than where all have spent theirs, and no longer than said;
    clock.now += ALL_RETIRED_GRACE + 2 * LOOK_SECONDS
    assert desertion.reason() is None
    clock.now += GRACE
    assert desertion.reason() is not None
    # and the wait ends when it is back.
    rig.live.presence["edge-2"] = "online"
    clock.now += LOOK_SECONDS
    assert desertion.reason() is None


def test_edges_are_looked_at_once_a_second_at_most(tmp_path: Path) -> None:
    rig, clock, looks = Rig(tmp_path), Clock(), []

    def look() -> RunReading:
        looks.append(1)
        return rig.reading()

    desertion = Desertion(look, rig.run.edges.count, GRACE, clock)
    for _ in range(100):
        desertion.reason()
        clock.now += LOOK_SECONDS / 20
    assert len(looks) == 5
