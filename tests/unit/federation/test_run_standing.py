"""What people are told of a run: its state, and for whom it waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tacit_services.federation.members import Member, MemberRoll
from tacit_services.federation.run_records import Answered, MemberAnswer, Reason, RunRecord
from tacit_services.federation.run_standing import standing

PRINT = "a" * 64
ROLL = MemberRoll(Member(number, f"Site {number}", "k", 0.0) for number in (0, 1))
OFFERED = RunRecord("retina", PRINT, "ada", 1.0, 2, 2, 60.0, 100)


def answered(record: RunRecord, **answers: tuple[Answered, Reason]) -> RunRecord:
    """Return the record with the answers of members 0 and 1."""
    entered = {
        name.replace("_", "-"): MemberAnswer(answer, PRINT, reason, 1.0)
        for name, (answer, reason) in answers.items()
    }
    return replace(record, answers=entered)


def told(record: RunRecord, roll: MemberRoll = ROLL) -> tuple[str, str]:
    """Return what is told of a run."""
    stands = standing(record, roll)
    return stands.state, stands.why


def test_an_offer_without_members_says_that_there_are_none() -> None:
    assert told(OFFERED, MemberRoll([])) == ("offered", "nobody is a member yet")


def test_an_offer_says_whose_answer_it_has_not() -> None:
    record = answered(OFFERED, edge_0=("declined", "declined"))
    assert told(record) == ("offered", "no answer yet of Site 1")


def test_a_run_that_all_have_refused_is_offered_no_more() -> None:
    record = answered(OFFERED, edge_0=("declined", "declined"), edge_1=("refused", "policy"))
    assert told(record) == (
        "waiting", "for a member to take part; who does not: Site 0 (declined), Site 1 (policy)",
    )  # fmt: skip


def test_a_member_that_was_revoked_is_not_asked() -> None:
    roll = MemberRoll([Member(0, "Site 0", "k", 0.0), Member(1, "Site 1", "k", 0.0, "", 2.0)])
    record = answered(OFFERED, edge_0=("declined", "declined"))
    assert told(record, roll)[0] == "waiting"


def test_a_run_with_too_few_says_whose_answer_it_has_not() -> None:
    record = answered(OFFERED, edge_0=("accepted", ""))
    assert told(record) == (
        "waiting", "1 of 2 members have consented; no answer yet of Site 1",
    )  # fmt: skip


@pytest.mark.parametrize("online", [None, 1])
def test_a_run_with_somebody_at_work_trains(online: int | None) -> None:
    record = answered(replace(OFFERED, state="training"), edge_0=("accepted", ""))
    assert told(replace(record, online=online)) == ("training", "")


def test_a_run_with_nobody_connected_waits_for_those_who_take_part() -> None:
    record = answered(replace(OFFERED, state="training"), edge_1=("accepted", ""))
    assert told(replace(record, online=0)) == ("waiting", "for Site 1: none is connected")


def test_a_run_that_every_member_left_says_who_has_withdrawn() -> None:
    record = replace(OFFERED, state="training", online=0)
    record = answered(record, edge_0=("withdrawn", "withdrawn"), edge_1=("refused", "unavailable"))
    assert told(record) == (
        "waiting",
        "for a member to take part; who does not: Site 0 (withdrawn), Site 1 (unavailable)",
    )


def test_a_reason_names_a_few_members_and_counts_the_rest() -> None:
    roll = MemberRoll(Member(number, f"Site {number}", "k", 0.0) for number in range(9))
    assert told(OFFERED, roll)[1] == "no answer yet of Site 0, Site 1, Site 2 and 6 more"


def test_a_run_that_is_over_keeps_its_own_reason() -> None:
    record = replace(OFFERED, state="failed", why="the test set is missing")
    assert told(record) == ("failed", "the test set is missing")
