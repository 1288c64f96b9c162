"""One reading of a run: immutable, of one moment, and of that run alone."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from tests.helpers.rest import Rig


def test_a_reading_stays_as_it_was_whatever_the_run_does(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.hello("edge-0")
    before = rig.reading()
    rig.update("edge-0")
    rig.hello("edge-1")
    rig.driver.halt("enough")
    assert (before.version, before.state, before.halted) == (0, "waiting", False)
    assert (list(before.records), before.online, before.counts["accepted"]) == (["edge-0"], 1, 1)
    after = rig.reading()
    assert (after.version, after.state, after.reason) == (1, "halted", "enough")
    assert (list(after.records), after.online) == (["edge-0", "edge-1"], 2)
    assert after.counts["accepted"] == 3


def test_nobody_can_write_into_a_reading(tmp_path: Path) -> None:
    reading = Rig(tmp_path).reading()
    with pytest.raises(FrozenInstanceError):
        reading.version = 1  # type: ignore[misc]


def test_health_is_read_while_the_role_changes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.link.up = True
    with rig.live.lock:
        health = rig.health()
    assert (health.recovered, health.over, health.store_up, health.broker_up) == (
        True,
        False,
        True,
        True,
    )


def test_two_runs_stand_side_by_side_in_one_process(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = Rig(tmp_path / "one"), Rig(tmp_path / "two")
    first.hello("edge-0")
    first.update("edge-0")
    assert (first.reading().version, first.reading().online) == (1, 1)
    other = second.reading()
    assert (other.version, other.records, other.presence) == (0, {}, {})
    assert sum(other.counts.values()) == 0
