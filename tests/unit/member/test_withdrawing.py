"""Withdrawal and consent, while the process that works is busy, and while offers change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tacit_services.disk import files
from tacit_services.member.answering import OwnerAnswers
from tacit_services.member.consent import KeyStanding
from tacit_services.member.consent_watch import ConsentWatch
from tacit_services.member.look_record import LookRecord
from tacit_services.member.member_state import MemberState
from tacit_services.member.screen_text import text_of
from tacit_services.offers.offer import OFFER, Offer

from tacit.errors import ConfigError
from tests.helpers.offered import key
from tests.unit.member.test_member_loop import offer


@pytest.fixture
def state(tmp_path: Path) -> MemberState:
    return MemberState(tmp_path / "state")


def answers(state: MemberState) -> OwnerAnswers:
    return OwnerAnswers(state, state.folder / "home")


def come(state: MemberState, offered: Offer, answer: str = "ask") -> None:
    """Let an offer have come, for its owner to answer."""
    folder = state.run(offered.run)
    files.write(folder / OFFER, offered.content(), files.SECRET)
    LookRecord(
        offered.fingerprint, answer, "", "", ((f"{offered.fingerprint} asks", (("-", "words"),)),)
    ).keep(folder)


class Ended:
    """What a watch has done to its process."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.killed = threading.Event()

    def end(self) -> None:
        self.ends.append("in order")

    def kill(self) -> None:
        self.ends.append("at once")
        self.killed.set()


def watched(
    state: MemberState, by: Offer, forbids: Callable[[], str | None] = lambda: None
) -> Ended:
    ended = Ended()
    ConsentWatch(state, by, forbids, ended.end, ended.kill, period=0.01, patience=0.01).start()
    return ended


def test_a_worker_ends_with_its_consent_though_its_member_is_busy(state: MemberState) -> None:
    mine, other = offer("retina"), offer("lungs")
    for each in (mine, other):
        come(state, each)
        answers(state).accept(each.run)
    ended = watched(state, mine)
    answers(state).withdraw("lungs")
    assert not ended.killed.wait(0.1)
    answers(state).withdraw("retina")
    assert ended.killed.wait(20)
    assert ended.ends == ["in order", "at once"]


def test_a_worker_ends_where_the_answers_cannot_be_read(state: MemberState) -> None:
    mine = offer("retina")
    come(state, mine)
    answers(state).accept("retina")
    ended = watched(state, mine)
    (state.folder / "consents.json").write_text("{")
    assert ended.killed.wait(20)


def test_a_worker_ends_with_its_owners_hours_though_its_member_is_busy(state: MemberState) -> None:
    mine = offer("retina")
    come(state, mine)
    answers(state).accept("retina")
    morning = threading.Event()
    ended = watched(state, mine, lambda: "its hours are over" if morning.is_set() else None)
    assert not ended.killed.wait(0.1)
    morning.set()
    assert ended.killed.wait(20)
    assert ended.ends == ["in order", "at once"]


def test_what_is_accepted_is_what_was_shown(state: MemberState) -> None:
    # Given: an owner reads one offer, and meanwhile another comes under its name
    first, second = offer("retina", 10), offer("retina", 11)
    come(state, first)
    assert first.fingerprint in text_of(answers(state).show("retina").sections)
    come(state, second)
    # When
    with pytest.raises(ConfigError, match="another offer has come"):
        answers(state).accept("retina")
    # Then
    assert state.consents().all() == ()
    answers(state).show("retina")
    answers(state).accept("retina")
    consent = state.consents().to(second)
    assert consent is not None
    assert consent.holds


def test_a_policy_confirms_no_key(state: MemberState) -> None:
    # Given: a policy has taken an offer under a name that anybody may give
    mine = offer("retina")
    with state.answering() as consents:
        consents.record(mine, "accepted", by_policy=True)
    assert state.consents().standing(offer("lungs")) is KeyStanding.SEEN
    # When: its owner accepts one by hand
    come(state, offer("lungs"))
    answers(state).accept("lungs")
    # Then
    assert state.consents().standing(mine) is KeyStanding.KNOWN


def test_a_new_key_is_confirmed_and_the_offer_looked_at_anew(state: MemberState) -> None:
    # Given: an offer is refused, as its name has come with another key before
    mine = offer("retina")
    others = key("ada", seed=7).signed(
        mine.model_copy(update={"run": "lungs", "researcher": key("ada", seed=7).public()})
    )
    come(state, mine)
    answers(state).accept("retina")
    come(state, others, "refuse")
    with pytest.raises(ConfigError, match="cannot be accepted"):
        answers(state).accept("lungs")
    # When
    answers(state).confirm("lungs")
    # Then: nothing is accepted before the policy has judged it
    assert state.consents().standing(others) is KeyStanding.KNOWN
    assert state.consents().to(others) is None
    with pytest.raises(ConfigError, match="no such offer has come"):
        answers(state).accept("lungs")
    come(state, others)
    answers(state).accept("lungs")
