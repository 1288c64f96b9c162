"""`tacit run` as a person starts it.

Results on disk, one line for what goes wrong, and no process left behind.
"""

from __future__ import annotations

import hashlib
import json
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import safetensors.torch
from tacit_services.cli.main import main

from tacit import config
from tests.helpers.processes import PATIENCE, environment
from tests.helpers.run_files import Layer, toml
from tests.helpers.servers import HOST, need, wait_for

RUN_FILE: Layer = {
    "algorithm": {"name": "mapa", "smoothness": 1.0, "deviation": 1.0},
    "privacy": {"batch": 32, "clip": 1.0, "epsilon": 2.0},
    "edges": {"count": 3},
    "evaluation": {"every": 100},
}
KEYS = {
    "algorithm",
    "dataset",
    "model",
    "parameters",
    "seed",
    "edges",
    "applied",
    "duplicates",
    "rejected",
    "duration_s",
    "updates_per_s",
    "test_accuracy",
    "test_loss",
    "model_version",
    "model_sha256",
    "staleness",
    "stages",
    "privacy",
}
EDGE_KEYS = {
    "epsilon_pld",
    "epsilon_rdp",
    "delta",
    "pushes",
    "noise_multiplier",
    "sampling_rate",
    "clip",
    "mechanism",
    "adjacency",
    "budget",
}
FILES = {
    "summary.json",
    "metrics.jsonl",
    "events.jsonl",
    "model.safetensors",
    "ledger.json",
    "plot.png",
    "definition.json",
}


def run_file(folder: Path, updates: int = 300, pushes: int = 400) -> Path:
    """Write a run file in `folder`; the budget of an edge covers `pushes` pushes."""
    path = folder / "small.toml"
    path.write_text(toml(RUN_FILE, run={"updates": updates}, privacy={"pushes": pushes}))
    return path


@contextmanager
def tacit_run(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run `tacit run ARGUMENTS`; it and its children have ended when the block is left."""
    command = [sys.executable, "-m", "tacit_services.cli.main", "run", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(COLUMNS="200", **variables),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            for child in family(process):
                child.kill()
            process.kill()
        process.communicate()


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the children of a process now."""
    children: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    return children


def gone(processes: list[psutil.Process]) -> bool:
    return not any(alive(process) for process in processes)


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it ended between the two
        return False


def training(process: subprocess.Popen[str], out: Path) -> list[psutil.Process]:
    """Wait until all edges have a ledger, so that the run is under way; its children."""
    wait_for(
        lambda: (
            len(list(out.glob("state/identities/*/ledger.db"))) == 3 or process.poll() is not None
        ),
        PATIENCE,
    )
    assert process.poll() is None, process.communicate()
    return family(process)


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has ended well."""

    out: Path
    stdout: str
    stderr: str
    summary: dict[str, Any]

    @classmethod
    def of(cls, out: Path, *arguments: str, **variables: str) -> Finished:
        with tacit_run(*arguments, "--out", str(out), **variables) as process:
            stdout, stderr = process.communicate(timeout=2 * PATIENCE)
        assert process.returncode == 0, stderr
        return cls(out, stdout, stderr, json.loads((out / "summary.json").read_text()))

    def pushes(self, number: int) -> int:
        """Return how many releases the ledger file of this edge has."""
        with closing(
            sqlite3.connect(self.out / "state" / "identities" / str(number) / "ledger.db")
        ) as db:
            return int(db.execute("SELECT SUM(count) FROM chain").fetchone()[0])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run 300 updates by two edges, on mosquitto and redis, with --json."""
    need("mosquitto"), need("redis-server")
    folder = tmp_path_factory.mktemp("run")
    return Finished.of(
        folder / "out", str(run_file(folder)), "--edges", "2", "--seed", "7", "--json"
    )


class TestResults:
    def test_the_summary_has_every_key_of_the_contract(self, finished: Finished) -> None:
        summary = finished.summary
        assert summary.keys() >= KEYS
        assert {"mean", "p95", "max"} <= summary["staleness"].keys()
        assert {"guarantee", "delta", "epsilon", "edges"} <= summary["privacy"].keys()
        assert summary["privacy"]["edges"].keys() == {"edge-0", "edge-1"}
        for edge in summary["privacy"]["edges"].values():
            assert edge.keys() >= EDGE_KEYS

    def test_it_says_what_was_asked_for(self, finished: Finished) -> None:
        summary = finished.summary
        expected = {
            "algorithm": "mapa",
            "dataset": "digits",
            "model": "logistic",
            "parameters": 650,
            "seed": 7,
        }
        assert {key: summary[key] for key in expected} == expected
        assert (summary["edges"], summary["applied"], summary["model_version"]) == (2, 300, 300)
        assert summary["state"] == "finished"

    def test_every_update_is_counted_once(self, finished: Finished) -> None:
        reported = {
            name: edge["pushes"] for name, edge in finished.summary["privacy"]["edges"].items()
        }
        # What was pushed and is not in the model came after the last: at most one push of each
        # edge.
        assert 300 <= sum(reported.values()) <= 302

    def test_no_ledger_has_spent_less_than_is_reported(self, finished: Finished) -> None:
        for number in (0, 1):
            reported = finished.summary["privacy"]["edges"][f"edge-{number}"]
            assert finished.pushes(number) >= reported["pushes"] > 0
            assert 0 < reported["epsilon_pld"] < reported["epsilon_rdp"]
            assert reported["epsilon_pld"] <= reported["budget"]

    def test_the_run_has_learned_something(self, finished: Finished) -> None:
        assert finished.summary["test_accuracy"] > 0.3
        assert finished.summary["privacy"]["epsilon"] <= 2.0

    def test_standard_output_is_the_summary(self, finished: Finished) -> None:
        assert json.loads(finished.stdout) == finished.summary
        (opening,) = [line for line in finished.stderr.splitlines() if "REST http://" in line]
        assert "2 edges, 300 updates; broker mosquitto, store" in opening

    def test_the_model_file_is_the_one_of_the_summary(self, finished: Finished) -> None:
        data = (finished.out / "model.safetensors").read_bytes()
        assert hashlib.sha256(data).hexdigest() == finished.summary["model_sha256"]
        layers = safetensors.torch.load(data)
        assert sum(layer.numel() for layer in layers.values()) == 650

    def test_the_metrics_are_a_series_up_to_the_end(self, finished: Finished) -> None:
        points = [
            json.loads(line) for line in (finished.out / "metrics.jsonl").read_text().splitlines()
        ]
        versions = [point["version"] for point in points]
        assert versions == sorted(versions)
        assert (versions[0] < 100, versions[-1]) == (True, 300)
        assert points[-1]["accuracy"] == finished.summary["test_accuracy"]
        assert all(
            {"seconds", "loss", "epsilon", "staleness", "clip"} <= point.keys() for point in points
        )

    def test_the_other_files(self, finished: Finished) -> None:
        assert {path.name for path in finished.out.iterdir()} == FILES | {"state"}
        assert json.loads((finished.out / "ledger.json").read_text()) == finished.summary["privacy"]
        picture = (finished.out / "plot.png").read_bytes()
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        assert picture[-8:-4] == b"IEND"


def refused(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    """Return the standard error of `tacit run ARGUMENTS`, which exits with status `code`.

    It runs in this process.
    """
    with pytest.raises(SystemExit) as exited:
        main(["run", *map(str, arguments)])
    assert exited.value.code == code
    return capsys.readouterr().err


def test_a_port_that_is_taken_is_one_line_and_code_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server((HOST, 0)) as listener:
        address = f"{HOST}:{listener.getsockname()[1]}"
        errors = refused(
            capsys, 4, run_file(tmp_path), "--out", tmp_path / "out", "--serve", address
        )
    assert errors == (
        f"tacit: --serve {address}: Address already in use; name another port, or leave --serve out "
        "for a free one\n"
    )
    assert not (tmp_path / "out").exists()


def test_ctrl_c_ends_everything_and_a_second_run_starts_anew(tmp_path: Path) -> None:
    # Given a long run into a folder with an earlier run's results,
    out = tmp_path / "out"
    (out / "state").mkdir(parents=True)
    (out / "state" / ".tacit-run").touch()
    (out / "state" / "store.db").write_text("of the earlier run")
    for name in FILES:
        (out / name).write_text("of the earlier run")
    with tacit_run(
        str(run_file(tmp_path, updates=100_000, pushes=5000)), "--out", str(out)
    ) as process:
        children = training(process, out)
        services = [child for child in children if not child.name().startswith("python")]
        # when it is interrupted,
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE)
    # then it has said where the earlier run is now, all of it, and leaves with 130.
    assert process.returncode == 130, stderr
    assert (
        len(children) == 8
    )  # broker, store, forkserver with its resource tracker, aggregator, three edges
    assert gone(services)
    wait_for(lambda: gone(children), PATIENCE)  # the forkserver notices
    assert f"the earlier run in {out} is now in {out}-1\n" in stdout
    assert "Traceback" not in stdout + stderr
    assert not any(
        path.read_bytes().startswith(b"of the") for path in out.rglob("*") if path.is_file()
    )
    earlier = tmp_path / "out-1"
    for name in (*FILES, "state/store.db"):
        assert (earlier / name).read_text() == "of the earlier run"
    assert not (out / "summary.json").exists()


def test_kill_9_leaves_no_child(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    with tacit_run(
        str(run_file(tmp_path, updates=100_000, pushes=5000)), "--out", str(out)
    ) as process:
        children = training(process, out)
        errors = refused(
            capsys, 4, run_file(tmp_path), "--out", out
        )  # another, not while this one is there
        assert errors == f"tacit: --out {out}: another `tacit run` is under way there\n"
        process.kill()
        process.wait()
        wait_for(lambda: gone(children), PATIENCE)


def test_a_folder_of_somebody_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (out / "state").mkdir(parents=True)
    (out / "state" / "thesis.tex").touch()
    errors = refused(capsys, 2, run_file(tmp_path), "--out", out)
    assert errors == f"tacit: --out {out}: {out}/state exists and is not an earlier `tacit run`\n"
    assert [path.name for path in out.rglob("*")] == ["state", "thesis.tex"]


@pytest.mark.slow
def test_without_mosquitto_and_redis_it_says_so_and_works(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    run = Finished.of(tmp_path / "out", str(run_file(tmp_path, updates=60)), PATH=str(empty))
    (opening,) = [line for line in run.stdout.splitlines() if "REST http://" in line]
    assert (
        "broker amqtt (no mosquitto on PATH), store SQLite (no redis or valkey on PATH)" in opening
    )
    assert run.summary["applied"] == 60
    assert "updates applied" in run.stdout
    assert (run.out / "state" / "store.db").exists()


@pytest.mark.slow
def test_children_that_are_killed_are_started_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with tacit_run(
        str(run_file(tmp_path, updates=1500, pushes=1500)), "--out", str(out), "--json"
    ) as process:
        by_name = {
            child.name(): child for child in training(process, out)
        }  # one of each; a killed one has no name
        for service in ("tacit aggregato", "tacit edge"):  # the system keeps 15 characters
            by_name[service].kill()
        for server in ("mosquitto", "redis-server"):  # they end well, and are missed all the same
            by_name[server].terminate()
        stdout, stderr = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, stderr
    assert json.loads(stdout)["applied"] == 1500


@pytest.mark.exhaustive
def test_edges_without_budget_retire_and_the_run_ends_early(tmp_path: Path) -> None:
    # Given a budget for 20 pushes of each of three edges, and 300 wanted updates,
    path = run_file(tmp_path, pushes=20)
    pushes = config.load(path).plan(0).pushes_left(())
    assert pushes is not None
    run = Finished.of(tmp_path / "out", str(path))
    # then the run halts by itself after them, and says why.
    summary = run.summary
    assert summary["state"] == "halted"
    assert summary["applied"] == 3 * pushes < 300
    for number in range(3):
        edge = summary["privacy"]["edges"][f"edge-{number}"]
        assert edge["pushes"] == run.pushes(number) == pushes
        assert edge["epsilon_pld"] <= edge["budget"] == 2.0
    assert f"): {3 * pushes} of 300 updates" in " ".join(run.stdout.split())
    assert "the run ended early (the budget of every edge online is spent" in " ".join(
        run.stdout.split()
    )
    log = (run.out / "state" / "aggregator.log").read_text()
    assert f"run halted at version {3 * pushes}: the budget of every edge online is spent" in log
