"""How far long work is, and how long it will take."""

from __future__ import annotations

import time

import pytest
from tacit_services.display.progress import LongWork, SlowSteps, TimeLeft, clock


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_time_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert clock(seconds) == said


def test_the_rest_goes_at_the_pace_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("tacit_services.display.progress.time.monotonic", lambda: now[0])
    left = TimeLeft()
    now[0] += 1.0
    assert left.after(1, 4) == ""  # too early to say
    now[0] += 9.0
    assert left.after(1, 4) == " · about 30 s left"
    assert left.after(0, 4) == left.after(4, 4) == ""


@pytest.mark.parametrize("total", [10.0, None])
def test_a_bar_is_for_terminals_alone(
    total: float | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def worked() -> str:
        with LongWork("folding", total) as work:
            work.at(5.0, "folding [bold]more[/bold]")
        said = capsys.readouterr()
        assert said.out == ""
        return said.err

    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert worked() == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = worked()
    assert "folding [bold]more[/bold]" in shown  # as it is: no markup
    assert ("━" in shown) == (total is not None)


def test_a_step_is_said_once_one_waits_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowSteps()
    monkeypatch.setattr("tacit_services.display.progress.FIRST", 60.0)
    with slow.step("quick"):
        pass
    monkeypatch.setattr("tacit_services.display.progress.FIRST", 0.2)
    with slow.step("slow"):
        time.sleep(0.6)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "slow …\n")
