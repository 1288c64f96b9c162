"""A member that does all it can in its messages, against a broker with the rules and limits of
compose.yaml: the others train on, and nobody's memory leaves its bound. In packets:
test_attack_packets.

Half a minute with `make test-all`; `make chaos` runs the five minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tacit_client import ApiError, Client, Unreachable
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.transport import rest_client

from tests.helpers.hostile import HARMLESS_TO_THE_MODEL
from tests.helpers.processes import Deployment, deployment
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import HOST, PATIENCE, free_port, secure_mosquitto, wait_for

RUN_ID, HONEST, HOSTILE = "attacked", ("edge-0", "edge-1"), "edge-2"
MEGABYTE = 1 << 20
ROUNDS = 3  # of calm and attack
STARTS = 6 * PATIENCE  # seconds until a process of the lowest priority must have begun
# What the aggregator's queue and its unfinished messages may take in a run of three small edges:
# 8 MiB of queue each, a message of 1 MiB each that is put together twice over, and the heap's holes.
AGGREGATOR_BOUND = 100 * MEGABYTE
# An edge's retained messages (two topics of a megabyte), its queue to the aggregator (in flight, and
# 2,000 messages), and what one connection is sending.
BROKER_BOUND = 256 * MEGABYTE


def rss(pid: int) -> int:
    """Bytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run_text() -> str:
    """Two honest edges whose steps take long beside a message, and a place for the member."""
    return toml(
        MAPA,
        run={"updates": 10**6, "snapshot_every": 200},
        algorithm={"max_staleness": 1000},
        # For more pushes than five minutes have: at z = 1 two edges of a quiet machine had spent all.
        privacy={"batch": 16, "noise_multiplier": 10.0, "epsilon": 10**5},
        edges={"count": 3, "slowdown": [10.0, 10.0, 1.0], "min": 2, "share": "any"},
    )


@contextmanager
def besieged(
    run: Deployment, bundle: Path, edge: str, behaviours: tuple[str, ...]
) -> Iterator[subprocess.Popen[bytes]]:
    """A hostile member beside the run, in what it says."""
    with hostile_process(run, "hostile", [str(run.file)], edge, bundle, behaviours) as member:
        yield member


@contextmanager
def besieged_by_packets(
    run: Deployment, bundle: Path, edge: str, behaviours: tuple[str, ...]
) -> Iterator[subprocess.Popen[bytes]]:
    """A hostile member beside the run, in its packets."""
    with hostile_process(run, "hostile_packets", [], edge, bundle, behaviours) as member:
        yield member


@contextmanager
def hostile_process(
    run: Deployment,
    module: str,
    first: list[str],
    edge: str,
    bundle: Path,
    behaviours: tuple[str, ...],
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of `module`, at the lowest priority.

    Its processor is its own, in the world: here it must not be what the others compute with. What
    the broker and the aggregator do for it, they do at their own.
    """
    only = [word for name in behaviours for word in ("--only", name)]
    command = ["nice", "-n", "19", sys.executable, "-m", f"tests.helpers.{module}"]
    command += [*first, run.broker, run.run_id, edge, *only, "--bundle", str(bundle)]
    said = run.folder / f"{module}.log"
    with said.open("wb") as log:
        member = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(lambda: b"begins" in said.read_bytes() or member.poll() is not None, STARTS)
        yield member
    finally:
        assert member.poll() is None, said.read_text()
        member.kill()
        member.wait()


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def honest(client: Client) -> int:
    """Updates of honest edges."""
    return sum(edge.updates for edge in client.edges() if edge.id in HONEST)


def rate(client: Client, seconds: float, look: Callable[[], None] = lambda: None) -> float:
    """Honest updates a second; `look` is called about twice a second."""
    began, before = time.monotonic(), honest(client)
    while time.monotonic() - began < seconds:
        threading.Event().wait(0.5)  # between two samples
        assert client.status().state == "training"
        look()
    return (honest(client) - before) / (time.monotonic() - began)


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(30.0, marks=pytest.mark.slow),
        pytest.param(300.0, marks=[pytest.mark.exhaustive, pytest.mark.alone]),
    ],
)
def test_the_others_train_on_and_memory_stays_in_its_bounds(tmp_path: Path, seconds: float) -> None:
    authority = CertificateAuthority.create(tmp_path / "pki")
    edges = (*HONEST, HOSTILE)
    with secure_mosquitto(tmp_path, authority.issue("broker", [HOST]), RUN_ID, edges) as broker:
        address, http = f"{HOST}:{broker.port}", f"{HOST}:{free_port()}"
        store = f"sqlite:///{tmp_path}/store.db"
        with deployment(tmp_path, run_text(), address, store, RUN_ID) as run:
            aggregator = run.aggregator(TACIT_HTTP=http, **settings(authority.issue("aggregator")))
            for number, name in enumerate(HONEST):
                # In slots. A push is held back all the same, and longer where the attack makes it late.
                run.edge(number, TACIT_ROWS_ALONE="false", **settings(authority.issue(name)))
            with rest_client.client(f"http://{http}") as client:
                wait_for(lambda: answers(client) and honest(client) > 20, PATIENCE)
                assert aggregator.process is not None
                pids = broker.pid, aggregator.process.pid
                before, most = [rss(pid) for pid in pids], [0, 0]

                def look() -> None:
                    most[:] = [max(m, rss(pid)) for m, pid in zip(most, pids, strict=True)]

                bundle, usual, attacked, effort = authority.issue(HOSTILE), 0.0, 0.0, 0.0
                for _ in range(ROUNDS):  # in turns, as other work on the machine comes and goes
                    usual += rate(client, seconds / 2 / ROUNDS) / ROUNDS
                    with besieged(run, bundle, HOSTILE, HARMLESS_TO_THE_MODEL) as member:
                        attacked += rate(client, seconds / ROUNDS, look) / ROUNDS
                        effort += processor_seconds(member.pid)
                grown = [m - b for m, b in zip(most, before, strict=True)]
                print(f"rate {usual:.1f} → {attacked:.1f}/s; grown", grown, effort)  # noqa: T201
                assert attacked > usual / 2
                if seconds > 100:  # alone on the machine, it does all it can
                    assert effort > seconds / 2
                assert grown[0] < BROKER_BOUND
                assert grown[1] < AGGREGATOR_BOUND
                after = honest(client)
                wait_for(lambda: honest(client) > after + 20, PATIENCE)


def settings(bundle: Path) -> dict[str, str]:
    return {
        "TACIT_TLS_CA": str(bundle / "ca.crt"),
        "TACIT_TLS_CERT": str(bundle / "tls.crt"),
        "TACIT_TLS_KEY": str(bundle / "tls.key"),
    }


def answers(client: Client) -> bool:
    try:
        return client.status().state == "training"
    except (ApiError, Unreachable):  # it is still starting
        return False
