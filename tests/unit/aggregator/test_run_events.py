"""The events of a run: with the server's time, over restarts, crashes told apart from farewells."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tacit_services.aggregator.reading import RunReading, read
from tacit_services.aggregator.reporting.run_events import FILE, MOST, RunEvents
from tacit_services.aggregator.reporting.server_time import server_time

from tacit.algorithms import registry
from tests.helpers.run_files import MAPA, run_file

DEFINITION = run_file(MAPA, run={"updates": 9}, edges={"count": 3}).define()
ROLE = registry.server(DEFINITION, DEFINITION.build_model())


class Watched:
    """A run as a test has it, and its events."""

    def __init__(self, folder: Path, run: str = "one") -> None:
        self.presence: dict[str, str] = {}
        self.vetoes: dict[str, str] = {}
        self.seconds = 0
        self.reason = ""
        self.events = RunEvents(folder / FILE, run, self.reading, self.now)
        self.events.resume()

    def now(self) -> str:
        self.seconds += 1
        return f"2026-11-29T10:00:{self.seconds:02d}.000Z"

    def reading(self) -> RunReading:
        now = read(
            ROLE, Counter(), dict(self.presence),
            vetoes=dict(self.vetoes), run_id="one", fingerprint="", quarantined={},
        )  # fmt: skip
        return replace(now, state="halted", reason=self.reason) if self.reason else now

    def texts(self) -> list[str]:
        self.events.look()
        return [event.text for event in self.events.after(0, 1000)]


def test_who_comes_leaves_and_is_lost_is_told_once_with_a_time(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    for states in ({"edge-0": "online"}, {"edge-1": "online"}, {}, {"edge-1": "offline"}):
        run.presence |= states
        run.events.look()
    run.presence["edge-0"] = "left"
    run.vetoes["edge-2"] = "max_epsilon"
    run.presence["edge-2"] = "left"
    run.reason = "operator"
    assert run.texts() == [
        "the aggregator begins",
        "edge-0 is online",
        "the run is waiting",
        "edge-1 is online",
        "edge-1 is offline: its connection was lost without a goodbye",
        "edge-0 has left",
        "edge-2 is refusing: its policy's max_epsilon does not allow this run",
        "the run is halted: operator",
    ]
    events = run.events.after(0, 1000)
    assert [event.number for event in events] == list(range(1, 9))
    assert [event.at for event in events] == sorted({event.at for event in events})
    assert [event.number for event in run.events.after(6, 1000)] == [7, 8]
    assert [event.number for event in run.events.after(0, 2)] == [7, 8]


def test_a_killed_aggregator_is_told_from_one_that_was_stopped(tmp_path: Path) -> None:
    first = Watched(tmp_path)
    first.presence["edge-0"] = "online"
    first.events.look()
    second = Watched(tmp_path)  # the first was killed
    second.presence["edge-0"] = "online"  # as the broker has it; told already
    second.events.look()
    second.events.stop()
    second.events.stop()
    third = Watched(tmp_path)
    assert third.texts()[3:6] == [
        "the aggregator is started again: the one before it ended without a farewell, after "
        "2026-11-29T10:00:03.000Z",
        "the aggregator stops",
        "the aggregator is started again",
    ]
    lines = (tmp_path / FILE).read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == list(range(1, len(lines) + 1))


def test_a_line_that_was_cut_and_another_runs_events_are_none(tmp_path: Path) -> None:
    Watched(tmp_path, "other").events.look()
    with (tmp_path / FILE).open("a") as file:
        file.write('[1]\n{"run": "one"}\n{"run": "one", "number": 1, "at"')
    run = Watched(tmp_path)
    assert run.texts() == ["the aggregator begins", "the run is waiting"]
    assert len((tmp_path / FILE).read_text().splitlines()) == 2


def test_an_edge_that_comes_and_goes_for_ever_fills_nothing(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    for number in range(MOST + 100):
        run.presence["edge-0"] = ("online", "left")[number % 2]
        run.events.look()
    run.reason = "operator"
    assert run.texts()[-1] == "the run is halted: operator"
    assert len((tmp_path / FILE).read_text().splitlines()) == MOST + 1


def test_a_disk_that_takes_no_line_costs_the_line_alone(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    run.presence["edge-0"] = "online"
    assert "edge-0 is online" in run.texts()


def test_the_servers_time_is_utc_to_a_thousandth() -> None:
    time = server_time()
    assert (time[10], time[-5], time[-1], len(time)) == ("T", ".", "Z", 24)
