"""When runs begin, and what happens to the others when one fails."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tacit_services.aggregator.reporting.end_reasons import NO_BETTER
from tacit_services.federation.run_records import MemberAnswer, RunRecord, RunRecords
from tacit_services.federation.supervisor import LEFT, MOST_DEATHS, Supervisor

from tacit.errors import ConfigError

PRINT = "a" * 64


@dataclass
class Process:
    """A process that ends when the test says so."""

    starts: int = 0
    ended: int | None = None

    def start(self) -> None:
        self.starts += 1
        self.ended = None

    def code(self) -> int | None:
        return self.ended

    def stop(self) -> None:
        self.ended = 0

    def complaint(self) -> str:
        return "the test set is missing"


@dataclass
class Rules:
    """The rules as they stand: who may take part in what."""

    opened: set[tuple[str, str]] = field(default_factory=set)

    def open(self, run: str, member: str) -> None:
        self.opened.add((run, member))

    def close(self, run: str, member: str) -> None:
        self.opened.discard((run, member))

    def open_run(self, run: str) -> None:
        self.opened.add((run, "aggregator"))

    def close_run(self, run: str) -> None:
        self.opened = {pair for pair in self.opened if pair[0] != run}

    def disconnect(self, member: str) -> None:
        self.opened = {pair for pair in self.opened if pair[1] != member}

    def stop(self) -> None:
        pass


@dataclass
class Asked:
    """What was asked of aggregators; each answers that it waits."""

    began: list[str] = field(default_factory=list)
    halted: list[str] = field(default_factory=list)
    applied: int = 0
    online: int = 1

    def status(self, run: str) -> dict[str, object]:
        return {"state": "waiting", "applied": self.applied, "edges_online": self.online}

    def begin(self, run: str) -> None:
        self.began.append(run)

    def halt(self, run: str, reason: str) -> bool:
        self.halted.append(run)
        return True


class House:
    """A supervisor with a clock that the test moves."""

    def __init__(self, folder: Path, parallel: int = 2) -> None:
        self.records = RunRecords(folder)
        self.rules = Rules()
        self.asked = Asked()
        self.processes: dict[str, Process] = {}
        self.now = 1000.0
        self.members: list[str] = []  # who may answer
        self.fault: Exception | None = None
        self.supervisor = Supervisor(
            self.records,
            self.rules,
            self.asked,
            self._made,
            parallel,
            lambda: self.members,
            lambda: self.now,
        )

    def _made(self, record: RunRecord) -> Process:
        if self.fault is not None and record.name == "bad":
            raise self.fault
        self.processes[record.name] = Process()
        return self.processes[record.name]

    def submit(self, name: str, needed: int = 2, least: int = 1, wait: float = 60.0) -> None:
        self.now += 1
        self.records.add(RunRecord(name, PRINT, "ada", self.now, needed, least, wait, 100))

    def consent(self, name: str, *numbers: int) -> None:
        for number in numbers:
            self.records.answer(
                name, f"edge-{number}", MemberAnswer("accepted", PRINT, "", self.now)
            )

    def state(self, name: str) -> str:
        self.supervisor.look()
        record = self.records.get(name)
        assert record is not None
        return record.state


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_run_begins_when_enough_members_have_consented(house: House) -> None:
    house.submit("one")
    assert house.state("one") == "offered"
    house.consent("one", 3)
    assert house.state("one") == "waiting"
    house.consent("one", 1)
    assert house.state("one") == "training"
    assert house.rules.opened == {("one", "aggregator"), ("one", "edge-1"), ("one", "edge-3")}


def test_consent_to_another_offer_does_not_count(house: House) -> None:
    house.submit("one", needed=1)
    house.records.answer("one", "edge-0", MemberAnswer("accepted", "b" * 64, "", house.now))
    assert house.state("one") == "offered"


def test_with_fewer_it_begins_after_its_wait(house: House) -> None:
    house.submit("one", needed=3, least=2, wait=60)
    house.consent("one", 0)
    assert house.state("one") == "waiting"
    house.now += 61
    assert house.state("one") == "waiting"  # fewer than the least
    house.consent("one", 1)
    assert house.state("one") == "training"
    house.now += 2
    house.supervisor.look()
    assert house.asked.began == ["one"]  # its aggregator waits for no third


def test_begin_now_needs_nobody_else(house: House) -> None:
    house.submit("one", needed=5, wait=1e9)
    house.consent("one", 2)
    assert house.state("one") == "waiting"
    house.records.change("one", begin=True)
    assert house.state("one") == "training"


def test_runs_beyond_the_parallel_wait_for_a_place(house: House) -> None:
    for name in ("one", "two", "three"):
        house.submit(name, needed=1)
        house.consent(name, 0)
    assert [house.state(name) for name in ("one", "two", "three")] == [
        "training", "training", "waiting",
    ]  # fmt: skip
    (house.records.results("one")).mkdir(parents=True)
    (house.records.results("one") / "summary.json").write_text("{}")
    house.processes["one"].ended = 0
    assert house.state("one") == "ended"
    assert house.state("three") == "training"


def test_a_run_that_fails_says_why_and_blocks_no_other(house: House) -> None:
    for name in ("bad", "good"):
        house.submit(name, needed=1)
        house.consent(name, 0)
    house.supervisor.look()
    house.processes["bad"].ended = 3  # it gave a reason: another start would not help
    assert house.state("bad") == "failed"
    record = house.records.get("bad")
    assert record is not None
    assert record.why == "the test set is missing"
    assert house.state("good") == "training"
    assert not any(run == "bad" for run, _ in house.rules.opened)


def test_an_aggregator_that_dies_is_started_again(house: House) -> None:
    house.submit("one", needed=1)
    house.consent("one", 0)
    house.supervisor.look()
    for death in range(1, 4):
        house.processes["one"].ended = -9
        assert house.state("one") == "training"
        house.now += 20
        house.supervisor.look()
        assert house.processes["one"].starts == death + 1


def test_an_aggregator_that_dies_again_and_again_fails(house: House) -> None:
    house.submit("one", needed=1)
    house.consent("one", 0)
    house.supervisor.look()
    for _ in range(MOST_DEATHS + 1):
        house.processes["one"].ended = -9
        house.supervisor.look()
        house.now += 10
        house.supervisor.look()
    assert house.state("one") == "failed"


def test_an_aggregator_that_was_stopped_without_results_is_started_again(house: House) -> None:
    house.submit("one", needed=1)
    house.consent("one", 0)
    house.supervisor.look()
    house.processes["one"].ended = 0  # SIGTERM from outside
    assert house.state("one") == "training"
    house.supervisor.look()
    assert house.processes["one"].starts == 2


def test_a_stopped_run_is_halted_with_its_results(house: House) -> None:
    house.submit("one", needed=1)
    house.consent("one", 0)
    house.supervisor.look()
    house.supervisor.halt("one", "enough")
    house.supervisor.look()
    assert house.asked.halted == ["one"]
    (house.records.results("one")).mkdir(parents=True)
    (house.records.results("one") / "summary.json").write_text("{}")
    house.processes["one"].ended = 0
    assert house.state("one") == "stopped"


def test_a_run_that_does_not_train_is_stopped_at_once(house: House) -> None:
    house.submit("one")
    house.supervisor.halt("one", "a mistake")
    house.consent("one", 0, 1)
    assert house.state("one") == "stopped"


def test_a_host_that_is_started_again_goes_on(tmp_path: Path) -> None:
    before = House(tmp_path)
    before.submit("one", needed=1)
    before.consent("one", 0)
    before.supervisor.look()
    after = House(tmp_path)  # kill -9: nothing was closed
    after.supervisor.start()
    after.supervisor.close()
    assert after.processes["one"].starts == 1
    assert ("one", "edge-0") in after.rules.opened


def test_who_withdraws_says_nothing_more(house: House) -> None:
    house.submit("one", needed=1)
    house.consent("one", 0, 1)
    house.supervisor.look()
    house.supervisor.withdrawn("one", "edge-1")
    assert ("one", "edge-1") not in house.rules.opened
    assert ("one", "edge-0") in house.rules.opened


def test_a_run_whose_process_cannot_be_made_fails_and_blocks_no_other(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.fault = ConfigError("name: too long")
    for name in ("bad", "good"):
        house.submit(name, needed=1)
        house.consent(name, 0)
    assert house.state("bad") == "failed"
    assert house.state("good") == "training"
    after = House(tmp_path)  # and a host that is started again serves
    after.supervisor.start()
    after.supervisor.close()
    assert set(after.processes) == {"good"}


def test_a_run_whose_disk_was_full_is_begun_later(house: House) -> None:
    house.fault = OSError("no space is left")
    for name in ("bad", "good"):
        house.submit(name, needed=1)
        house.consent(name, 0)
    house.supervisor.look()
    assert house.state("good") == "training"
    house.fault = None
    assert house.state("bad") == "training"
    assert house.processes["bad"].starts == 1


def test_who_answers_while_a_run_begins_is_followed(house: House) -> None:
    # Given: one member consents, and another withdraws, while the broker's rules are opened
    house.submit("one", needed=2)
    house.consent("one", 0, 1)

    class Slow(Rules):
        def open_run(self, run: str) -> None:
            super().open_run(run)
            house.consent("one", 2)
            withdrawn = MemberAnswer("withdrawn", PRINT, "declined", house.now)
            house.records.answer("one", "edge-1", withdrawn)

    slow = Slow()
    supervisor = Supervisor(
        house.records, slow, house.asked, house._made, 2, list, lambda: house.now
    )
    # When
    supervisor.look()
    # Then
    assert slow.opened == {("one", "aggregator"), ("one", "edge-0"), ("one", "edge-2")}


def test_a_stop_outlasts_a_host_that_is_killed(tmp_path: Path) -> None:
    before = House(tmp_path)
    before.submit("one", needed=1)
    before.consent("one", 0)
    before.supervisor.look()
    before.supervisor.halt("one", "enough")
    after = House(tmp_path)  # kill -9, before the aggregator has heard of it
    after.supervisor.look()
    after.supervisor.look()
    assert after.asked.halted == ["one"]


def withdraw(house: House, member: str) -> None:
    """Take a member's consent to run one back."""
    gone = MemberAnswer("withdrawn", PRINT, "withdrawn", house.now)
    house.records.answer("one", member, gone)


def test_a_run_that_every_member_left_is_stopped_after_its_grace(house: House) -> None:
    house.members = ["edge-0"]
    house.submit("one", needed=1)
    house.consent("one", 0)
    house.supervisor.look()
    withdraw(house, "edge-0")
    house.supervisor.look()
    house.now += 59
    house.supervisor.look()
    assert house.asked.halted == []
    house.now += 2
    house.supervisor.look()
    house.supervisor.look()
    assert house.asked.halted == ["one"]
    record = house.records.get("one")
    assert record is not None
    assert record.stopping == LEFT


def test_a_run_waits_where_somebody_may_still_answer(house: House) -> None:
    house.members = ["edge-0", "edge-1"]
    house.submit("one", needed=1)
    house.consent("one", 0)
    house.supervisor.look()
    withdraw(house, "edge-0")
    for _ in range(3):
        house.now += 1000
        house.supervisor.look()
    assert house.asked.halted == []


def test_who_comes_within_the_grace_keeps_a_run_alive(house: House) -> None:
    house.members = ["edge-0"]
    house.submit("one", needed=1)
    house.consent("one", 0)
    house.supervisor.look()
    for _ in range(3):
        withdraw(house, "edge-0")
        house.supervisor.look()
        house.now += 50
        house.consent("one", 0)
        house.supervisor.look()
    house.supervisor.look()
    assert house.asked.halted == []


@pytest.mark.parametrize(
    ("summary", "state", "why"),
    [
        ({"state": "finished", "reason": "all updates are applied", "applied": 100}, "ended", ""),
        ({"state": "halted", "reason": f"{NO_BETTER} for 5"}, "ended", ""),
        (
            {"state": "halted", "reason": "the budget of every edge online is spent", "applied": 7},
            "stopped",
            "the budget of every edge online is spent",
        ),
    ],
)
def test_a_run_that_ends_before_its_updates_says_why(
    house: House, summary: dict[str, object], state: str, why: str
) -> None:
    house.submit("one", needed=1)
    house.consent("one", 0)
    house.supervisor.look()
    house.records.results("one").mkdir(parents=True)
    (house.records.results("one") / "summary.json").write_text(json.dumps(summary))
    house.processes["one"].ended = 0
    assert house.state("one") == state
    record = house.records.get("one")
    assert record is not None
    assert (record.why, record.applied) == (why, summary.get("applied", 0))
