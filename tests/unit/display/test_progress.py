"""How far long work is, and how long it will take."""

from __future__ import annotations

import time

import pytest
from tacit_services.display.progress import LongWork, SlowSteps, TimeLeft, clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_time_is_said_as_people_say_it(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_the_rest_goes_at_the_pace_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("tacit_services.display.progress.time.monotonic", lambda: now[0])
    estimate = TimeLeft()
    now[0] += 1.0
    assert estimate.after(1, 4) == ""  # too early to say
    now[0] += 9.0
    assert estimate.after(1, 4) == " · about 30 s left"
    assert estimate.after(0, 4) == estimate.after(4, 4) == ""


@pytest.mark.parametrize("total", [10.0, None])
def test_a_bar_is_for_terminals_alone(
    total: float | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def worked() -> str:
        with LongWork("folding", total) as work:
            work.at(5.0, "folding [bold]more[/bold]")
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert worked() == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    output = worked()
    assert "folding [bold]more[/bold]" in output  # as it is: no markup
    assert ("━" in output) == (total is not None)


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
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "slow …\n")
