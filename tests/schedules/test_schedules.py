"""Whole runs under schedules of faults: none breaks a promise, and every planted fault is seen."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tacit import config
from tacit.config import RunFile
from tests.conftest import ROOT
from tests.helpers.run_files import toml
from tests.schedules import follow
from tests.schedules.disk import SimulatedDisk
from tests.schedules.faults import EDGES, Fault, Schedule, draw
from tests.schedules.follow import Simulation
from tests.schedules.parts import Record, failure, first_failure, run_part
from tests.schedules.planted import PLANTED
from tests.schedules.shrink import shrunk

SEEDS = 60
CALM = replace(draw(0), seed=1, updates=6, chunk=1 << 18, computing=2.0, limit=4096, faults=())
# Where the search for a planted fault begins. It goes on from there, if its first seed is another now.
NEAR = {
    "halt_is_lost": 11,
    "snapshot_of_an_earlier_place": 6,
    "journal_file_without_fsync": 131,
    "parts_of_two_messages": 3302,
    "lost_store_is_not_seen": 419,
    "torn_record_stays": 67,
}
ENOUGH = 10_000


def with_faults(*faults: Fault) -> Schedule:
    return replace(CALM, faults=faults)


def test_no_schedule_breaks_a_promise() -> None:
    assert run_part(range(SEEDS)).failures == {}


@pytest.mark.parametrize("entry", ["fedadam:FedAdam", "fedprox:FedProx"])
def test_none_breaks_a_promise_to_an_algorithm_of_ones_own(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update each, and rounds of local steps."""

    @cache
    def defined(updates: int, snapshot_every: int) -> RunFile:
        text = toml(
            run={"updates": updates, "snapshot_every": snapshot_every},
            algorithm={"entry": entry},
            edges={"count": EDGES, "wait": 5.0},
            privacy={"epsilon": 60.0, "noise_multiplier": 0.8, "clip": 1.0, "batch": 32.0},
        )
        return config.parse(text, "test", folder=ROOT / "examples" / "algorithms")

    monkeypatch.setattr(follow, "definition", defined)
    assert run_part(range(SEEDS // 2)).failures == {}


@pytest.mark.parametrize("plant", sorted(PLANTED))
def test_a_planted_fault_is_seen(plant: str) -> None:
    seed, promise = first_failure(NEAR.get(plant, 0), ENOUGH, PLANTED[plant]())
    assert seed >= 0
    assert promise


def test_a_seed_is_the_same_run_every_time(tmp_path: Path) -> None:
    def story(seed: int) -> list[tuple[float, str, str, int]]:
        simulation = Simulation(draw(seed), Path(tempfile.mkdtemp(dir=tmp_path)))
        simulation.follow()
        sent = [parcel for run in simulation.runs for parcel in run.network.history]
        return [(p.sent_at, p.sender, p.topic, len(p.payload)) for p in sent]

    assert all(story(seed) == story(seed) for seed in range(5))


def test_a_halt_while_the_broker_is_away_reaches_the_edges() -> None:
    # An aggregator that left with its last words in a queue would leave them waiting for ever.
    away = Fault("cut", "aggregator", 1.0, seconds=20.0)
    assert failure(with_faults(away, Fault("halt", at=2.0))) == ""


@pytest.mark.parametrize(("kind", "of_both"), [("kill", 0), ("both", 1), ("power", 1)])
def test_a_machine_that_dies_has_its_processes_in_both_runs_die(
    tmp_path: Path, kind: str, of_both: int
) -> None:
    death = Fault(kind, "edge-0", 20)
    simulation = Simulation(replace(with_faults(death), runs=2), tmp_path)
    simulation.follow()
    deaths = [[run.machines[f"edge-{n}"].deaths for run in simulation.runs] for n in range(EDGES)]
    assert deaths == [[1, of_both], [0, 0]]


def test_seeds_draw_schedules_of_one_run_and_of_two() -> None:
    schedules = [draw(seed) for seed in range(400)]
    assert 60 < sum(schedule.runs == 2 for schedule in schedules) < 140
    assert any(schedule.short for schedule in schedules)


def test_an_update_that_comes_again_after_the_end_was_accepted() -> None:
    # It is a duplicate, and not refused as one that came too late.
    outage = Fault("outage", at=4.88, seconds=20.0)
    assert failure(replace(with_faults(outage), snapshot_every=1, journal_file=True)) == ""


def test_a_store_that_is_away_while_edges_take_leave_does_not_end_the_aggregator() -> None:
    away = Fault("away", at=2.04, seconds=3.0)
    assert failure(with_faults(Fault("halt", at=2.0), away)) == ""


def test_a_schedule_shrinks_to_the_faults_that_it_fails_with() -> None:
    # Given a schedule that fails with its third and its eighth fault,
    faults = tuple(Fault("message", at=number) for number in range(12))
    # when it is shrunk, then these are left.
    small = shrunk(with_faults(*faults), lambda s: {faults[2], faults[7]} <= set(s.faults))
    assert small.faults == (faults[2], faults[7])


def test_a_disk_has_after_a_crash_what_was_synced_and_a_piece_of_the_rest(tmp_path: Path) -> None:
    # Given a file that was synced and then grew, one that no folder has, and one never synced,
    disk = SimulatedDisk(0.5)
    for name in ("grows", "empty"):
        (tmp_path / name).touch()
    with (tmp_path / "grows").open("wb") as file:
        file.write(b"synced")
        file.flush()
        disk.sync_file(file)
        disk.sync(tmp_path)
        file.write(b"lost")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "nameless").write_bytes(b"x")
    # when the machine loses its power,
    disk.crash(tmp_path)
    # then what was synced is there.
    assert (tmp_path / "grows").read_bytes() == b"syncedlo"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "grows"]


def test_a_part_that_is_recorded_is_not_run_again(tmp_path: Path) -> None:
    record = Record(tmp_path / "commit.txt")
    assert not record.has(range(500))
    record.add(range(500))
    assert record.has(range(500))
    assert not record.has(range(500, 1000))
