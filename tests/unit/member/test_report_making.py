"""An owner's page has reports made by a process of its own, one at a time, and says why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.member.answering import AnswerRefused
from tacit_services.member.member_state import MemberState
from tacit_services.member.owner_desk import OwnerDesk
from tacit_services.member.report_figures import JudgedBoth, OwnReport
from tacit_services.member.report_making import ReportMaking

from tests.helpers.servers import wait_for
from tests.unit.member.test_member_loop import offer
from tests.unit.member.test_withdrawing import come

FIGURES = {"accuracy": JudgedBoth(0.9, 0.8, None)}


def test_a_report_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    making = ReportMaking(tmp_path / "state")
    assert making.of("retina").state == "none"
    assert making.begin("retina").state == "begun"
    wait_for(lambda: making.of("retina").state != "begun")
    standing = making.of("retina")
    assert (standing.state, standing.report) == ("failed", None)
    assert "no such folder" in standing.why
    making.close()


def test_one_report_is_made_at_a_time_and_none_after_the_end_of_the_page(tmp_path: Path) -> None:
    making = ReportMaking(tmp_path / "state")
    making.begin("retina")
    with pytest.raises(AnswerRefused, match="a report is being made"):
        making.begin("lungs")
    making.close()  # waits for nothing: the process is ended
    assert making.of("retina").state == "failed"
    with pytest.raises(AnswerRefused, match="the page is ending"):
        making.begin("retina")
    making.close()


def test_a_report_is_on_an_offer_that_has_come(tmp_path: Path) -> None:
    desk = OwnerDesk(MemberState(tmp_path / "state"), tmp_path)
    come(MemberState(tmp_path / "state"), offer("retina"))
    assert desk.report("retina")["state"] == "none"
    for asked in (desk.report, desk.make_report):
        with pytest.raises(KeyError):
            asked("../retina")
    desk.close()


def test_a_report_is_read_back_as_it_was_written() -> None:
    report = OwnReport("retina", 80, 320, FIGURES, held_out=True)
    assert OwnReport.of(report.document()) == report
    damages: list[dict[str, object]] = [{}, {"metrics": []}, report.document() | {"other": 1}]
    for damaged in damages:
        with pytest.raises((KeyError, TypeError, AttributeError)):
            OwnReport.of(damaged)


def test_words_say_whether_the_model_has_learnt_from_the_rows_judged_on() -> None:
    apart = " ".join(OwnReport("retina", 180, 320, FIGURES, held_out=True).words())
    assert "which the run has held out: neither model has learnt from them" in apart
    assert "learnt from all of your rows" not in apart
    whole = " ".join(OwnReport("retina", 80, 320, FIGURES).words())
    assert "learnt from all of your rows, through noise" in whole
    assert "So few rows decide little" in whole
    assert "So few rows" not in apart
    assert "nothing of them leaves" in apart
