"""What a member does at each look at its host's list, with its owner's answers on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tacit_services.member.consent_watch import PAUSED
from tacit_services.member.host_client import HostClient, Offered, VersionsApartError
from tacit_services.member.look_record import LookRecord, forget_look
from tacit_services.member.member_loop import MemberLoop
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_diary import RunDiaries, diary_in
from tacit_services.offers.offer import Offer, Researcher, key_text

from tacit.errors import ConfigError, PrivacyError, ServiceError

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
Told = tuple[str, str, str]


def offer(run: str, updates: int = 10) -> Offer:
    researcher = Researcher(name="ada", key=key_text(KEY))
    unsigned = Offer(run=run, file={"run": {"updates": updates}}, researcher=researcher)
    return unsigned.signed(KEY)


@dataclass
class Host:
    """A host's list, and what it was told."""

    listed: list[Offered] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    fault: ServiceError | None = None
    refused: str | None = None  # why it takes no answer

    def offers(self) -> list[Offered]:
        if self.fault is not None:
            raise self.fault
        return list(self.listed)

    def answer(self, run: str, fingerprint: str, answer: str, reason: str = "") -> None:
        if self.refused is not None:
            raise ConfigError(self.refused)
        self.told.append((run, answer, reason))


@dataclass
class Process:
    """A process that ends when the test says so."""

    run: str
    starts: int = 0
    ended: int | None = None
    stopped: bool = False

    def start(self) -> None:
        self.starts += 1
        self.ended = None

    def code(self) -> int | None:
        return self.ended

    def stop(self) -> None:
        self.stopped = True

    def complaint(self) -> str:
        return "its disk is full"


class Site:
    """A member with a host, and an owner."""

    def __init__(self, folder: Path) -> None:
        self.state = MemberState(folder)
        self.host = Host()
        self.offers: dict[str, Offer] = {}
        self.policy = "ask"
        self.processes: list[Process] = []
        self.fault: Exception | None = None
        self.night = False
        self.idles = 0
        self.working: list[str] = []  # at the last look
        self.fetched: list[str] = []
        self.loop = self.restarted()

    def restarted(self) -> MemberLoop:
        """Return a loop that knows nothing but what is on disk."""
        return MemberLoop(
            cast(HostClient, self.host), self.state, self._looked, self._made,
            RunDiaries(self.state, self.state.folder / "home", lambda: 1_800_000_000.0),
            fetch=lambda offered: self.fetched.append(offered.run),
            may_work=lambda: not self.night, idle=self._idle,
        )  # fmt: skip

    def _idle(self) -> None:
        self.idles += 1

    def _looked(self, offered: Offered) -> LookRecord:
        self.working = [each.run for each in self.processes if not each.stopped]
        if self.fault is not None:
            raise self.fault
        record = LookRecord(offered.fingerprint, self.policy, "policy", "too large an ε", ())
        record.keep(self.state.run(offered.run))
        if self.policy == "accept":
            self.accept(offered.run)
        return record

    def _made(self, run: str) -> Process:
        if isinstance(self.fault, PrivacyError):
            raise self.fault
        self.processes.append(Process(run))
        return self.processes[-1]

    def show(self, run: str, state: str = "training", updates: int = 10) -> None:
        self.offers[run] = offer(run, updates)
        others = [other for other in self.host.listed if other.run != run]
        self.host.listed = [*others, Offered(run, self.offers[run].fingerprint, state)]

    def accept(self, run: str) -> None:
        with self.state.answering() as consents:
            consents.record(self.offers[run], "accepted")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "state")


def test_nothing_works_before_its_owner_has_answered(site: Site) -> None:
    site.show("retina")
    site.loop.turn()
    assert (site.host.told, site.processes) == ([], [])
    site.accept("retina")
    site.loop.turn()
    assert site.host.told == [("retina", "accepted", "")]
    assert [process.starts for process in site.processes] == [1]
    site.loop.turn()
    assert len(site.host.told) == len(site.processes) == 1


def test_a_consent_waits_until_the_run_trains(site: Site) -> None:
    site.policy = "accept"
    site.show("retina", "waiting")
    site.loop.turn()
    assert (site.host.told, site.processes) == ([("retina", "accepted", "")], [])
    site.show("retina", "training")
    site.loop.turn()
    assert len(site.processes) == 1


def test_of_a_refusal_the_host_is_told_its_kind_alone(site: Site) -> None:
    site.policy = "refuse"
    site.show("retina")
    site.loop.turn()
    assert site.host.told == [("retina", "refused", "policy")]


def test_another_offer_of_the_same_run_is_asked_about_anew(site: Site) -> None:
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    site.policy = "ask"
    site.show("retina", updates=11)
    site.loop.turn()
    assert site.processes[0].stopped
    site.loop.turn()
    assert len(site.processes) == 1


def test_withdrawal_ends_the_process_although_the_host_is_away(site: Site) -> None:
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    with site.state.answering() as consents:
        consents.withdraw("retina")
    site.host.fault = ServiceError("no answer")
    with pytest.raises(ServiceError):
        site.loop.turn()
    assert site.processes[0].stopped
    site.host.fault = None
    site.loop.turn()
    assert site.host.told[-1] == ("retina", "withdrawn", "")
    assert len(site.processes) == 1


def test_a_process_that_dies_is_started_again_and_one_that_gives_a_reason_is_not(
    site: Site,
) -> None:
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    (process,) = site.processes
    process.ended = -9
    site.loop.turn()
    assert process.starts == 2
    process.ended = 5
    site.loop.turn()
    site.loop.turn()
    assert (process.starts, len(site.processes)) == (2, 1)
    assert site.host.told == [("retina", "accepted", ""), ("retina", "refused", "unavailable")]


def test_a_process_that_found_no_host_at_its_start_is_started_again(site: Site) -> None:
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    (process,) = site.processes
    process.ended = ServiceError.exit_code
    site.loop.turn()
    assert (process.starts, len(site.processes)) == (2, 1)


def test_what_is_wrong_with_the_ledger_is_told_as_unavailable(site: Site) -> None:
    site.show("retina")
    site.accept("retina")
    site.fault = PrivacyError("data: its ledger has 1,234 releases")
    for _ in range(3):
        site.loop.turn()
    assert site.host.told == [("retina", "accepted", ""), ("retina", "refused", "unavailable")]


def test_what_is_no_offer_stops_no_other(site: Site) -> None:
    site.fault = ConfigError("is not canonical JSON")
    site.show("bad")
    site.loop.turn()
    site.fault = None
    site.policy = "accept"
    site.show("good")
    site.loop.turn()
    assert [process.run for process in site.processes] == ["good"]


def test_outside_of_its_hours_nothing_works(site: Site) -> None:
    site.policy = "accept"
    site.night = True
    site.show("retina")
    site.loop.turn()
    assert site.processes == []
    site.night = False
    site.loop.turn()
    assert len(site.processes) == 1
    site.night = True
    site.loop.turn()
    assert site.processes[0].stopped


def test_two_runs_have_a_process_each_and_the_ledger_is_given_back_at_the_end(site: Site) -> None:
    site.policy = "accept"
    site.show("first")
    site.show("second")
    site.loop.turn()
    assert [process.run for process in site.processes] == ["first", "second"]
    assert site.idles == 0
    for process in site.processes:
        process.ended = 0
    site.show("first", "ended")
    site.show("second", "ended")
    site.loop.turn()
    assert site.idles == 1


def test_a_process_that_does_not_hear_of_its_runs_end_is_ended(site: Site) -> None:
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    (process,) = site.processes
    site.show("retina", "ended")
    site.loop.turn()
    assert not process.stopped  # it may say farewell
    for _ in range(20):
        site.loop.turn()
    assert process.stopped
    assert site.idles > 0
    assert len(site.processes) == process.starts == 1


def test_an_answer_that_the_host_takes_no_more_ends_no_member(site: Site) -> None:
    # Given: a run that ended while its offer was looked at
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    site.host.refused = "run lungs: has stopped"
    site.show("lungs", "waiting")
    # When
    site.loop.turn()
    # Then
    assert [(each.run, each.stopped) for each in site.processes] == [("retina", False)]
    site.host.refused = None
    site.show("liver", "waiting")
    site.loop.turn()
    assert site.host.told[-1] == ("liver", "accepted", "")


def test_nobody_works_while_another_offers_files_are_fetched(site: Site) -> None:
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    assert [each.stopped for each in site.processes] == [False]
    site.policy = "ask"
    site.show("retina", updates=11)
    site.loop.turn()
    assert site.working == []


def test_an_offer_whose_key_was_confirmed_is_looked_at_anew(site: Site) -> None:
    site.policy = "refuse"
    site.show("retina")
    site.loop.turn()
    site.policy = "accept"
    site.loop.turn()
    assert site.host.told == [("retina", "refused", "policy")]
    forget_look(site.state.run("retina"))
    site.loop.turn()
    assert site.host.told[-1] == ("retina", "accepted", "")


def test_a_process_that_was_paused_is_begun_anew_when_it_may_work(site: Site) -> None:
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    # Given: a loop that was blocked from the end of the hours to their next beginning
    site.processes[0].ended = PAUSED
    site.loop.turn()
    site.loop.turn()
    assert [process.starts for process in site.processes] == [1, 1]


def test_the_files_of_a_run_are_swept_once_it_is_over_and_its_process_has_ended(site: Site) -> None:
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    file = site.state.run("retina") / "files" / "net.graph.json"
    file.parent.mkdir()
    file.write_text("{}")
    site.show("retina", "ended")
    site.loop.turn()
    assert file.exists()
    site.processes[0].ended = 0
    site.loop.turn()
    assert not file.parent.exists()
    diary = diary_in(site.state.run("retina"))
    assert diary is not None
    assert (diary.state, diary.began, diary.ended) == ("ended", 1_800_000_000.0, 1_800_000_000.0)
    assert site.fetched == []


def test_a_run_that_goes_on_after_its_end_has_its_files_fetched_anew(site: Site) -> None:
    # Given: a host that was set back to a state before the end of a run
    site.policy = "accept"
    for state in ("training", "ended", "training"):
        site.show("retina", state)
        site.loop.turn()
        for process in site.processes[:1]:
            process.ended = 0
        site.loop.turn()
        site.loop = site.restarted()
    assert site.fetched == ["retina"]
    assert len(site.processes) == 2


def test_a_damaged_diary_stops_no_other_run(site: Site) -> None:
    site.policy = "accept"
    site.show("old", "ended")
    site.state.run("old").joinpath("diary.json").write_text("{")
    LookRecord(site.offers["old"].fingerprint, "ask", "", "", ()).keep(site.state.run("old"))
    site.show("good")
    site.loop.turn()
    assert [process.run for process in site.processes] == ["good"]


def test_a_member_too_far_from_its_host_rests_and_asks_again(site: Site) -> None:
    # Given
    site.policy = "accept"
    site.show("retina")
    site.loop.turn()
    [process] = site.processes
    # When: the host was updated
    site.host.fault = VersionsApartError("update the member")
    with pytest.raises(ServiceError, match="update the member"):
        site.loop.turn()
    # Then: nobody works, and the consent holds
    assert process.stopped
    site.host.fault = None
    site.loop.turn()
    assert [each.starts for each in site.processes] == [1, 1]
    assert site.host.told == [("retina", "accepted", "")]
