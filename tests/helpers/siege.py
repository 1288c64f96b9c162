"""A run with a hostile member beside it, in processes: how fast the honest edges go on, and what
the broker and the aggregator take meanwhile. The broker has the rules and limits of compose.yaml.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tacit_client import ApiError, Client, Unreachable
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.transport import rest_client
from tacit_services.transport.mqtt import MAX_PACKET

from tests.helpers.forked import Forked
from tests.helpers.processes import Deployment, deployment
from tests.helpers.run_files import ASGD, toml
from tests.helpers.servers import (
    HOST,
    PATIENCE,
    Mosquitto,
    free_port,
    rss,
    secure_mosquitto,
    wait_for,
)

Module = Literal["hostile", "hostile_packets"]  # in what it says; in its packets
HONEST, HOSTILE = ("edge-0", "edge-1"), "edge-2"
LOOK = 0.5  # seconds between two looks at the run
# What may wait for the aggregator: 1,000 packets. Beside it its retained messages, its will, what
# its connection is sending, and the receipts that it does not read.
PACKETS_BOUND = (1000 + 60) * MAX_PACKET
# Its processor is its own, in the world: here it must not be what the others compute with. What the
# broker and the aggregator do for it, they do at their own priority.
_PROCESS = """
import os, sys
from tests.helpers import {module}
log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND)
os.dup2(log, 1), os.dup2(log, 2)
os.nice(19)
{module}.main()
"""


def run_text() -> str:
    """Return a run of two honest edges whose steps take long, with a place for the hostile member.

    The edges add no noise: a private push is held back for longer than its work takes, so a rate of
    such pushes is the delay's, and shows little of the services.
    """
    return toml(
        ASGD,
        run={"updates": 10**6, "snapshot_every": 200},
        algorithm={"max_staleness": 1000},
        privacy={"batch": 16},
        edges={"count": 3, "slowdown": [10.0, 10.0, 1.0], "min": 2, "share": "any"},
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """Honest updates a second without and with the attack; bytes by which broker and aggregator
    have grown; processor seconds of the attacker.
    """

    usual: float
    attacked: float
    grown: tuple[int, int]
    effort: float


class Live:
    """A run that trains, its broker, and the certificate of the one who is to attack it."""

    def __init__(self, run: Deployment, broker: Mosquitto, client: Client, bundle: Path) -> None:
        self.run, self.broker, self.client, self.bundle = run, broker, client, bundle
        (self._aggregator, *_) = run.services

    def honest(self) -> int:
        """Return the updates of honest edges."""
        return sum(edge.updates for edge in self.client.edges() if edge.id in HONEST)

    def goes_on(self) -> None:
        """Wait until honest edges have had some more updates."""
        after = self.honest()
        wait_for(lambda: self.honest() > after + 20, PATIENCE)

    def attacked(
        self,
        module: Module,
        behaviours: tuple[str, ...],
        rounds: int,
        calm: float,
        seconds: float,
        enough: Callable[[str], bool] = lambda text: True,
    ) -> Outcome:
        """Return the outcome of an attack of `seconds`, in turns with `calm` seconds of none.

        In turns, as other work on the machine comes and goes. `enough` tells from the attacker's
        output whether it may end.
        """
        pids = self._pids()
        before, most, usual, attacked, effort = [*map(rss, pids)], [0, 0], 0.0, 0.0, 0.0

        def look() -> None:
            most[:] = [max(m, rss(pid)) for m, pid in zip(most, pids, strict=True)]

        for _ in range(rounds):
            usual += self._rate(calm / rounds) / rounds
            with self._besieged(module, behaviours) as (member, log):
                attacked += self._rate(seconds / rounds, look) / rounds
                wait_for(lambda log=log: enough(log.read_text()), PATIENCE)  # type: ignore[misc]
                effort += processor_seconds(member.pid)
        grown = (most[0] - before[0], most[1] - before[1])
        outcome = Outcome(usual, attacked, grown, effort)
        print(*behaviours, outcome)  # noqa: T201  (the figures of docs/attacks.md)
        return outcome

    def _pids(self) -> tuple[int, int]:
        """Return the process ids of broker and aggregator."""
        assert self._aggregator.process is not None
        return self.broker.pid, self._aggregator.process.pid

    def _rate(self, seconds: float, look: Callable[[], None] = lambda: None) -> float:
        """Return the honest updates a second; `look` is called about twice a second."""
        began, before = time.monotonic(), self.honest()
        while time.monotonic() - began < seconds:
            threading.Event().wait(LOOK)  # between two samples
            assert self.client.status().state == "training"
            look()
        return (self.honest() - before) / (time.monotonic() - began)

    @contextmanager
    def _besieged(
        self, module: Module, behaviours: tuple[str, ...]
    ) -> Iterator[tuple[Forked, Path]]:
        """Run a hostile member beside the run, at the lowest priority, and yield it and its log."""
        log = self.run.folder / f"{module}.log"
        log.write_bytes(b"")
        first = [self.run.file] if module == "hostile" else []
        only = [word for name in behaviours for word in ("--only", name)]
        arguments = [*first, self.run.broker, self.run.run_id, HOSTILE, *only]
        code = _PROCESS.format(module=module)
        with Forked(code, log, *arguments, "--bundle", self.bundle) as member:
            wait_for(lambda: "begins" in log.read_text() or not member.alive, 2 * PATIENCE)
            yield member, log
            assert member.alive, log.read_text()


@contextmanager
def running(folder: Path, run_id: str) -> Iterator[Live]:
    """Yield a broker, an aggregator and honest edges that have begun to train."""
    authority = CertificateAuthority.create(folder / "pki")
    edges = (*HONEST, HOSTILE)
    with secure_mosquitto(folder, authority.issue("broker", [HOST]), run_id, edges) as broker:
        address, http = f"{HOST}:{broker.port}", f"{HOST}:{free_port()}"
        store = f"sqlite:///{folder}/store.db"
        with deployment(folder, run_text(), address, store, run_id) as run:
            run.aggregator(TACIT_HTTP=http, **_settings(authority.issue("aggregator")))
            for number, name in enumerate(HONEST):
                run.edge(number, **_settings(authority.issue(name)))
            with rest_client.client(f"http://{http}") as client:
                live = Live(run, broker, client, authority.issue(HOSTILE))

                def trains() -> bool:
                    run.check_services()
                    return _answers(client) and live.honest() > 20

                wait_for(trains, PATIENCE)
                yield live


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _settings(bundle: Path) -> dict[str, str]:
    return {
        "TACIT_TLS_CA": str(bundle / "ca.crt"),
        "TACIT_TLS_CERT": str(bundle / "tls.crt"),
        "TACIT_TLS_KEY": str(bundle / "tls.key"),
    }


def _answers(client: Client) -> bool:
    try:
        return client.status().state == "training"
    except (ApiError, Unreachable):  # it is still starting
        return False
