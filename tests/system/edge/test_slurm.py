"""Edges as batch jobs of a real Slurm: what their time limit, a kill and a cancellation leave behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.helpers.processes import PATIENCE, Deployment, Watcher, appended, check, deployment
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import Mosquitto, RedisServer, wait_for
from tests.helpers.slurm import Slurm, slurm

SCRIPT = ROOT / "deploy" / "slurm" / "edge.sbatch"
MINUTES = 600.0  # seconds; a deadline: Slurm looks at its jobs' time every half minute
UPDATES = 150
# Slurm counts in minutes, and asks the script to end 10 to 40 s before.
LIMITS = ("--time=2", "--signal=B:TERM@10", "--mem=1G")


@pytest.fixture
def run(tmp_path: Path, broker: Mosquitto, redis: RedisServer) -> Iterator[Deployment]:
    """Yield a run of two edges that are slow enough to be stopped in its middle; nothing is started."""
    run_file = toml(
        MAPA,
        run={"updates": UPDATES, "snapshot_every": 40},
        edges={"count": 2, "slowdown": [20.0, 20.0]},
    )
    with deployment(
        tmp_path, run_file, f"{broker.host}:{broker.port}", redis.url, "slurm"
    ) as deployed:
        yield deployed


@pytest.fixture
def cluster() -> Iterator[Slurm]:
    with slurm() as running:
        yield running


def submitted(cluster: Slurm, run: Deployment, *options: str) -> str:
    """Submit the two edges of a run as an array; return its number."""
    variables = {
        "TACIT": str(Path(sys.executable).parent / "tacit"),
        "TACIT_RUN_FILE": str(run.file),
        "TACIT_RUN_ID": run.run_id,
        "TACIT_BROKER": run.broker,
        "TACIT_IDENTITIES": str(run.folder / "identities"),
    }
    log = f"--output={run.folder}/%a.log"
    return cluster.submit(SCRIPT, variables, "--array=0-1", *LIMITS, log, *options)


def process_of(number: int) -> int:
    """Return the pid of the edge with this identity that a job has started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"edge" in words and f"TACIT_IDENTITY={number}".encode() in variables:
            return int(entry.name)
    raise ProcessLookupError(number)


def wait_for_job(cluster: Slurm, job: str, state: str) -> None:
    """Wait until a job is in this state."""
    wait_for(lambda: cluster.job(job)["JobState"] == state, MINUTES)


@pytest.mark.exhaustive
def test_edges_go_on_when_their_time_is_up_or_they_are_killed_and_nothing_is_lost_or_twice(
    run: Deployment, cluster: Slurm
) -> None:
    # Given two edges as jobs, whose aggregator stands still: each has a message without a receipt,
    watcher = Watcher(run.broker, run.run_id)
    watcher.connection.start(PATIENCE)
    aggregator = run.aggregator()
    array = submitted(cluster, run)
    logs = [run.folder / f"{number}.log" for number in (0, 1)]
    wait_for(lambda: run.accepted() >= 20, MINUTES)
    assert aggregator.process is not None
    aggregator.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: all(run.pending(number) for number in (0, 1)), MINUTES)
    # when one of them is killed, and each is told that its time is up,
    os.kill(process_of(1), signal.SIGKILL)
    wait_for(lambda: "exit code 137; back" in logs[1].read_text(), MINUTES)
    wait_for(lambda: all("SIGTERM; back" in log.read_text() for log in logs), MINUTES)
    aggregator.process.send_signal(signal.SIGCONT)
    # then both go back into the queue, and go on, until the run is over.
    wait_for(lambda: aggregator.process is not None and aggregator.process.poll() == 0, MINUTES)
    for number in (0, 1):
        wait_for_job(cluster, f"{array}_{number}", "COMPLETED")
        assert int(cluster.job(f"{array}_{number}")["Restarts"]) >= 1 + number
    # Each update that was receipted is in the model, once, and the ledgers know of each release.
    check(run, run.summary(), appended(run.folder), range(2))
    assert not watcher.differing()
    watcher.connection.stop()


@pytest.mark.exhaustive
def test_a_cancelled_edge_and_one_with_a_wrong_setting_do_not_come_back(
    run: Deployment, cluster: Slurm
) -> None:
    # Given two edges that wait for their run to begin,
    array = submitted(cluster, run)
    logs = [run.folder / f"{number}.log" for number in (0, 1)]
    wait_for(
        lambda: all(log.exists() and "holds identity" in log.read_text() for log in logs), MINUTES
    )
    # when they are cancelled, each ends, and the job with it;
    cluster.run("scancel", array)
    wait_for(lambda: not cluster.run("squeue", "-h"), MINUTES)
    for number in (0, 1):
        job = cluster.job(f"{array}_{number}")
        assert (job["JobState"], job["Restarts"]) == ("CANCELLED", "0")
        assert "back into the queue" not in logs[number].read_text()
    # others, whose run file is missing, end by themselves.
    run.file.unlink()
    failed = submitted(cluster, run)
    for number in (0, 1):
        wait_for_job(cluster, f"{failed}_{number}", "FAILED")
        assert cluster.job(f"{failed}_{number}")["ExitCode"] == "2:0"
