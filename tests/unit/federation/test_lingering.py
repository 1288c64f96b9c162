"""The aggregator of a run that is over goes on answering, until another run begins or is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.federation.lingering import PAUSE, Lingering
from tacit_services.federation.run_records import MemberAnswer, RunRecord, RunRecords
from tacit_services.federation.supervisor import Supervisor

from tests.unit.federation.test_supervisor import PRINT, Asked, Process, Rules


class Answering(Asked):
    """Aggregators of which one says that its run is over."""

    over: str = ""

    def status(self, run: str) -> dict[str, object]:
        return {"state": "finished" if run == self.over else "training", "applied": 10}


class LingeringHost:
    """A host's supervisor that lets an aggregator linger."""

    def __init__(self, folder: Path) -> None:
        self.records = RunRecords(folder / "runs")
        self.rules = Rules()
        self.asked = Answering()
        self.processes: dict[str, list[Process]] = {}
        self.now = 0.0
        self.supervisor = self.started()

    def started(self) -> Supervisor:
        lingering = Lingering(self.rules, self.made, lambda: self.now)
        return Supervisor(
            self.records, self.rules, self.asked, self.made, 1, lambda: ["edge-0"],
            lambda: self.now, lingering,
        )  # fmt: skip

    def made(self, record: RunRecord) -> Process:
        self.processes.setdefault(record.name, []).append(Process())
        return self.processes[record.name][-1]

    def submit(self, run: str) -> None:
        self.records.add(RunRecord(run, PRINT, "ada", float(len(run)), 1, 1, 60.0, 10))
        self.records.answer(run, "edge-0", MemberAnswer("accepted", PRINT, "", 0.0))

    def look(self) -> None:
        self.now += 2.0
        self.supervisor.look()

    def end(self, run: str) -> None:
        """Let a run end by itself."""
        self.asked.over = run
        self.records.results(run).mkdir(parents=True)
        (self.records.results(run) / "summary.json").write_text("{}")
        self.look()


@pytest.fixture
def host(tmp_path: Path) -> LingeringHost:
    host = LingeringHost(tmp_path)
    host.submit("a")
    host.look()
    return host


def test_a_run_ends_though_its_aggregator_stays_and_its_members_may_say_nothing_more(
    host: LingeringHost,
) -> None:
    assert host.supervisor.newest() == "a"
    host.end("a")
    record = host.records.get("a")
    assert record is not None
    assert record.state == "ended"
    (process,) = host.processes["a"]
    assert process.code() is None
    assert host.rules.opened == {("a", "aggregator")}
    assert host.supervisor.newest() == "a"


def test_it_ends_when_the_next_run_begins(host: LingeringHost) -> None:
    host.end("a")
    host.submit("bb")
    host.look()
    assert host.processes["a"][0].code() == 0
    assert host.supervisor.newest() == "bb"
    assert {run for run, _ in host.rules.opened} == {"bb"}


def test_it_is_started_again_where_it_dies(host: LingeringHost) -> None:
    host.end("a")
    (process,) = host.processes["a"]
    process.ended = -9
    host.look()
    assert process.starts == 1
    host.now += PAUSE
    host.look()
    assert process.starts == 2


def test_a_host_that_is_started_again_shows_the_newest_run_that_is_over(
    host: LingeringHost,
) -> None:
    host.end("a")
    host.supervisor.close()
    assert host.processes["a"][0].code() == 0
    assert host.rules.opened == {("a", "aggregator")}
    host.supervisor = host.started()
    host.supervisor.start()
    assert host.supervisor.newest() == "a"
    assert host.processes["a"][1].starts == 1
    host.supervisor.close()
