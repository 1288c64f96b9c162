"""The bench beside others: what it says of each system, and that it ends what it started."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
from tacit_lab.bench.peers import __main__ as peers
from tacit_lab.bench.peers.window import Rate, lines, system


def test_rounds_are_interleaved_and_a_system_that_fails_is_said_not_run() -> None:
    asked: list[str] = []

    def fine(folder: Path, seconds: float) -> Rate:
        assert folder.is_dir()
        asked.append("tacit")
        return Rate(10.0 * len(asked), 5.0)

    def slow(folder: Path, seconds: float) -> Rate:
        asked.append("other")
        return Rate(5.0, 20.0)

    def broken(folder: Path, seconds: float) -> Rate:
        raise RuntimeError("no broker")

    chosen: dict[str, peers.Measure | str] = {
        "tacit": fine,
        "other": slow,
        "broken": broken,
        "absent": "needs a checkout",
    }
    made = peers.table(peers.measured(chosen, 2, 1.0))

    assert asked == ["tacit", "other"] * 2
    assert made["tacit"] == {"updates_per_s": [10.0, 20.0, 30.0], "cpu_ms": 5.0, "tacit_over": 1.0}
    assert made["other"] == {"updates_per_s": [5.0, 5.0, 5.0], "cpu_ms": 20.0, "tacit_over": 4.0}
    assert made["broken"] == "not run here: does not run: no broker"
    assert made["absent"] == "not run here: needs a checkout"


COUNTS = """
import itertools, sys
for number in itertools.count():
    print("step:", number, flush=True)
    sum(range(20_000))
"""


def test_a_window_counts_updates_and_processor_time_and_ends_all(tmp_path: Path) -> None:
    with system() as made:
        log = made.start([sys.executable, "-c", COUNTS], tmp_path, "log", {})
        found = made.rate(lambda: lines(log, b"step:"), 0.5)
        (process,) = [one for one in psutil.Process().children() if "step:" in str(one.cmdline())]
    assert found.per_s > 0
    assert found.cpu_ms > 0
    assert not process.is_running()


def test_a_system_whose_process_ends_is_not_measured(tmp_path: Path) -> None:
    with system() as made:
        made.start([sys.executable, "-c", "raise SystemExit(1)"], tmp_path, "log", {})
        with pytest.raises(RuntimeError, match="a process has ended"):
            made.rate(lambda: 0, 0.5)
