"""The bench beside others: what it says of each system, and that it ends what it started."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
from tacit_lab.bench.peers import __main__ as peers
from tacit_lab.bench.peers.window import Rate, lines, system


def test_rounds_are_interleaved_and_a_system_that_fails_is_said_not_run() -> None:
    calls: list[str] = []

    def fine(folder: Path, seconds: float) -> Rate:
        assert folder.is_dir()
        calls.append("tacit")
        return Rate(10.0 * len(calls), 5.0)

    def slow(folder: Path, seconds: float) -> Rate:
        calls.append("other")
        return Rate(5.0, 20.0)

    def broken(folder: Path, seconds: float) -> Rate:
        raise RuntimeError("no broker")

    chosen: dict[str, peers.Measure | str] = {
        "tacit": fine,
        "other": slow,
        "broken": broken,
        "absent": "needs a checkout",
    }
    table = peers.table(peers.measured(chosen, 2, 1.0))

    assert calls == ["tacit", "other"] * 2
    assert table["tacit"] == {"updates_per_s": [10.0, 20.0, 30.0], "cpu_ms": 5.0, "tacit_over": 1.0}
    assert table["other"] == {"updates_per_s": [5.0, 5.0, 5.0], "cpu_ms": 20.0, "tacit_over": 4.0}
    assert table["broken"] == "not run here: does not run: no broker"
    assert table["absent"] == "not run here: needs a checkout"


COUNTS = """
import itertools, sys
for number in itertools.count():
    print("step:", number, flush=True)
    sum(range(20_000))
"""


def test_a_window_counts_updates_and_processor_time_and_ends_all(tmp_path: Path) -> None:
    with system() as measured:
        log = measured.start([sys.executable, "-c", COUNTS], tmp_path, "log", {})
        rate = measured.rate(lambda: lines(log, b"step:"), 0.5)
        (process,) = [
            child for child in psutil.Process().children() if "step:" in str(child.cmdline())
        ]
    assert rate.per_s > 0
    assert rate.cpu_ms > 0
    assert not process.is_running()


def test_a_system_whose_process_ends_is_not_measured(tmp_path: Path) -> None:
    with system() as measured:
        measured.start([sys.executable, "-c", "raise SystemExit(1)"], tmp_path, "log", {})
        with pytest.raises(RuntimeError, match="a process has ended"):
            measured.rate(lambda: 0, 0.5)
