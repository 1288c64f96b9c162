"""Edges that kill themselves at a named point of a release: forked from one warm process, so that
each starts quickly.

`python -m tests.helpers.crash_edge` reads JSON lines and answers each: {"start": settings,
"log", "point", "release"} with the child's pid, {"wait": pid} with its exit status, or null while
it lives. The product has no hooks: the child replaces the functions around the point with ones that
send SIGKILL.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tacit_services.edge import main as edge_main
from tacit_services.settings import EdgeSettings, read_settings
from tacit_services.transport.mqtt import Connection
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.row_owner import RowOwner
from tacit_services.worker.session import Session

from tacit.errors import TacitError
from tacit.privacy.accounting import Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.chain import Charge
from tacit.privacy.private_sum.judged_sums import JudgedSums
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.whole_sums import WholeSums
from tacit.privacy.release import Plan
from tests.helpers.crash_plan import LOOK, Died
from tests.helpers.processes import environment
from tests.helpers.servers import PATIENCE, wait_for

# Where an edge dies, in the order of one release: before and after the ledger lets it begin (the
# first of a process has a commit of its own, the others are charged ahead), in it, around the one
# commit that stores its message and charges the next, in the middle of that, on the wire.
POINTS = (
    "before_begin",
    "after_begin",
    "in_compute",
    "before_commit",
    "in_commit",
    "after_commit",
    "after_publish",
    "on_receipt",
)
_WAYS: tuple[type[Any], ...] = (RowsAlone, WholeSums, JudgedSums)


def nobody() -> None:
    """Tell nobody."""


class Killer:
    """Ends this process at `point` of its release number `release`."""

    def __init__(
        self, point: str, release: int, *, ledger: type[Ledger] = Ledger, died: Died = nobody
    ) -> None:
        """ledger: which it charges. died: is told before it dies.

        A point that begins with LOOK counts looks at held-out rows alone, not what is trained.
        """
        self._looks = point.startswith(LOOK)
        self.point, self.release, self.charges = point.removeprefix(LOOK), release, 0
        self._ledger, self._died = ledger, died
        self.storing = False  # whether a message is being stored

    def at(self, point: str) -> None:
        """Die here, if this is the place.

        It is, if the release was the last one charged, so that its message is the next one.
        """
        if point == self.point and self.charges == self.release:
            self._died()
            os.kill(os.getpid(), signal.SIGKILL)

    def _computing(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        def new_compute(way: Any, *arguments: Any) -> Any:
            row_sums = compute(way, *arguments)
            self.at("in_compute")
            return row_sums

        return new_compute

    def _charging(self, charge: Callable[..., None]) -> Callable[..., None]:
        def new_charge(ledger: Ledger, *row: Any, **more: Any) -> None:
            if self._looks and more.get("purpose") != "judging":
                charge(ledger, *row, **more)
                return
            self.charges += 1
            self.at("before_begin")
            charge(ledger, *row, **more)
            self.at("after_begin")

        return new_charge

    def install(self) -> None:
        """Put the points around the functions that they are named after."""
        put = Outbox.put
        publish = Connection.publish
        receipt, transaction = Session._receipt, self._ledger.transaction

        def new_put(outbox: Outbox, *arguments: Any, **more: Any) -> None:
            self.at("before_commit")
            self.storing = True
            put(outbox, *arguments, **more)
            self.storing = False
            self.at("after_commit")

        @contextmanager
        def new_transaction(
            ledger: Ledger, ahead: Charge | None = None
        ) -> Iterator[sqlite3.Connection]:
            with transaction(ledger, ahead) as db:
                yield db
                if self.storing:
                    self.at("in_commit")

        def new_publish(connection: Connection, topic: str, payload: bytes, **more: Any) -> Any:
            published = publish(connection, topic, payload, **more)
            if topic.split("/")[3] == "up":
                self.at("after_publish")
            return published

        def new_receipt(session: Session, *arguments: Any) -> None:
            self.at("on_receipt")
            receipt(session, *arguments)

        replacements: list[tuple[type, str, Callable[..., Any]]] = [
            (self._ledger, "charge", self._charging(self._ledger.charge)),
            (self._ledger, "transaction", new_transaction),
            *((way, "compute", self._computing(way.compute)) for way in _WAYS),
            (Outbox, "put", new_put),
            (Connection, "publish", new_publish),
            (Session, "_receipt", new_receipt),
        ]
        for kind, name, replacement in replacements:
            setattr(kind, name, replacement)


def warm(settings: dict[str, Any]) -> None:
    """Do once, before any fork, what every edge would do again.

    That is: imports, data, and the certified counts.
    """
    torch.set_num_threads(1)
    certified = lru_cache(maxsize=None)(Plan.pushes_left)
    Plan.pushes_left = certified  # type: ignore[method-assign]
    edge_settings = read_settings(EdgeSettings, **settings)
    run = edge_settings.load_run()
    identity: Any = type("Identity", (), {"number": 0, "edge": "edge-0", "path": Path()})()
    ledger = Ledger(":memory:", run.source.name)
    owner = RowOwner(edge_settings.data, edge_settings.device, edge_settings.policy)
    plan = owner.role(run.define(), run.build_model(), identity, ledger).releaser.plan
    for count in range(1, 1 + min(certified(plan, ()) or 0, 8)):
        certified(plan, (Spend(plan.sampling_rate, plan.noise_multiplier, count, plan.mechanism),))


def start(order: dict[str, Any]) -> int:
    """Fork an edge; its pid."""

    def work() -> None:
        Killer(order["point"], order["release"]).install()
        edge_main.main(read_settings(EdgeSettings, **order["start"]))

    return forked(order["log"], work)


def forked(log: str, work: Callable[[], None]) -> int:
    """Fork a process that does `work`, says what it says in the file `log`, and ends as `tacit`
    would; its pid.
    """
    pid = os.fork()
    if pid:
        return pid
    log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (0, 1, 2):
        os.dup2(log_descriptor, descriptor)
    faulthandler.enable()  # a signal that ends it would leave no word
    code = 70
    try:
        work()
        code = 0
    except TacitError as error:
        os.write(2, f"tacit: {error}\n".encode())
        code = error.exit_code
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        raise
    finally:
        os._exit(code)


def serve(start: Callable[[dict[str, Any]], int] = start) -> None:
    """Answer orders until end of file; `start` forks what an order is for."""
    ready = False
    for line in sys.stdin:
        order = json.loads(line)
        answer: int | None
        if "start" in order:
            if not ready:
                warm(order["start"])
                ready = True
            answer = start(order)
        else:
            pid, status = os.waitpid(order["wait"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


class Forks:
    """The warm process, seen from a test."""

    def __init__(self, log: Path, module: str = "tests.helpers.crash_edge") -> None:
        command = [sys.executable, "-m", module]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(),
            )

    def ask(self, order: dict[str, Any]) -> int | None:
        """Send one order; the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: int | None = json.loads(self._process.stdout.readline())
        return answer

    def start(self, settings: dict[str, Any], log: Path, point: str = "", release: int = 0) -> int:
        """Start an edge, to die at `point` of its release number `release`; its pid."""
        pid = self.ask({"start": settings, "log": str(log), "point": point, "release": release})
        assert pid is not None
        return pid

    def wait(self, pid: int, seconds: float) -> int:
        """Return the exit status of an edge, once it has ended."""
        exit_codes: list[int] = []

        def ended() -> bool:
            status = self.ask({"wait": pid})
            exit_codes.extend([] if status is None else [status])
            return bool(exit_codes)

        wait_for(ended, seconds)
        return exit_codes[0]

    def close(self) -> None:
        """End of file: it leaves."""
        self._process.communicate(timeout=PATIENCE)


if __name__ == "__main__":
    serve()
