"""The bench beside others: what it says of each system, and that it ends what it started."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
from tacit_lab.bench.own_networks import OWN_NETWORKS
from tacit_lab.bench.peers import __main__ as peers
from tacit_lab.bench.peers import private_steps
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


def test_private_steps_take_turns_and_a_network_that_a_system_refuses_says_why() -> None:
    calls: list[tuple[str, str]] = []

    def ours(network: str, seconds: float) -> float:
        calls.append(("tacit", network))
        return float(len(calls))

    def theirs(network: str, seconds: float) -> float:
        calls.append(("theirs", network))
        if network == "lora":
            raise private_steps.DoesNotRunError("no such layer")
        return 3.0

    chosen: dict[str, private_steps.Ratio | str] = {
        "tacit": ours,
        "theirs": theirs,
        "absent": "needs a checkout",
    }
    table = private_steps.private_steps(chosen, ["mlp", "lora"], 2, 1.0)

    both = [("tacit", "mlp"), ("theirs", "mlp"), ("tacit", "lora")]
    assert calls == [*both, ("theirs", "lora"), *both]  # what it refuses is not tried again
    assert table["tacit"] == {"mlp": 3.0, "lora": 5.0}
    assert table["theirs"] == {"mlp": 3.0, "lora": "does not run: no such layer"}
    assert set(table["absent"].values()) == {"not run here: needs a checkout"}


def test_opacus_takes_the_networks_of_the_bench() -> None:
    """The venv's runner, in this one, which has Opacus, too."""
    measure = private_steps.other(Path(sys.executable), "opacus")
    assert measure("own-mlp", 0.1) > 1.0


def test_the_benchs_networks_are_tacits_too() -> None:
    model = OWN_NETWORKS["own-mlp"]()
    assert (model.shape, model.classes) == ((64,), 10)
