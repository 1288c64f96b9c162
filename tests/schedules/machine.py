"""The machine of an edge: its processes one after another, and a disk that may lose what is not synced.

A commit of SQLite is durable by its PRAGMA synchronous: after each the file's content is kept, and
a machine that loses its power comes back with the last content that was durable.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tacit_services.worker.outbox import Outbox

from tacit.errors import TacitError
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.chain import Charge
from tests.helpers.simulated_edge import OWNER, Killed, MortalLedger, SimulatedEdge
from tests.schedules.disk import SimulatedDisk
from tests.schedules.shared_time import SharedTime

FULL = 2  # PRAGMA synchronous, from which on a commit is on the disk when it returns
RESTART = 0.3  # seconds until a process that has died or was stopped is started again
STOPPED = "stopped"


@dataclass(slots=True)
class Durable:
    """The last state of a ledger's file that outlives the machine.

    charged: releases. messages: envelopes by their numbers; None: it is not there.
    """

    content: bytes = b""
    charged: int = 0
    messages: dict[int, bytes | None] = field(default_factory=dict)


class DurableLedger(MortalLedger):
    """A ledger that notes after each commit what has reached the disk."""

    durable: Durable
    in_file: Callable[[int], bytes | None]  # a message that has a file of its own

    @contextmanager
    def transaction(self, ahead: Charge | None = None) -> Iterator[sqlite3.Connection]:
        """As the ledger's."""
        self._point("before the commit")
        with super(MortalLedger, self).transaction(ahead) as db:
            yield db
            self._point("in the commit")
        self.note()
        self._point("after the commit")

    def note(self) -> None:
        """Note the file as it is, if the last commit was durable."""
        db, durable = self._db, self.durable
        if db.execute("PRAGMA synchronous").fetchone()[0] < FULL:
            return
        durable.content = Path(self._path).read_bytes()
        (durable.charged,) = db.execute("SELECT COALESCE(SUM(count), 0) FROM chain").fetchone()
        rows = db.execute("SELECT seq, envelope FROM message").fetchall()
        durable.messages = {seq: self.in_file(seq) if row is None else row for seq, row in rows}

    def close(self) -> None:
        """As the ledger's; then its file is as it was closed."""
        super().close()
        self.durable.content = Path(self._path).read_bytes()


class Machine(SimulatedEdge):
    """An edge whose processes die, and whose machine may lose its power.

    ending: why its last process has ended; "": it has not. lost_power: whether the next death is
    the machine's. begun: its processes.
    """

    idle = 0.5  # an idle look costs as much as one that finds something
    lost_power = False
    ending = ""
    begun = 0
    error: TacitError | None = None

    def prepare(self, disk: SimulatedDisk, large: int) -> None:
        """Begin with an empty disk. large: bytes above which a message has a file of its own."""
        self.durable, self._disk, self._large = Durable(), disk, large

    def open_outbox(self, ledger: Ledger) -> Outbox:
        """Open the outbox of a process that begins."""
        return Outbox(ledger, self.run_id, OWNER, self.folder, large=self._large, disk=self._disk)

    def in_file(self, seq: int) -> bytes | None:
        """Return a durable message that has a file of its own."""
        return self._disk.durable(self.folder / "messages" / f"{self.run_id}.{seq}")

    def open_ledger(self, path: Path, dataset: str) -> Ledger:
        """Open the ledger, and note what is durable of it."""
        ledger = DurableLedger.__new__(DurableLedger)
        ledger.durable, ledger._point = self.durable, self._pass
        ledger.in_file = self.in_file
        super(MortalLedger, ledger).__init__(path, dataset)
        ledger.note()
        return ledger

    def _pass(self, point: str) -> None:
        """Pass a point, unless the network's thread does."""
        assert isinstance(self._timeline, SharedTime)
        if self._timeline.in_process:
            super()._pass(point)

    def lose_power(self) -> None:
        """Kill the process with its machine; an action for `at`."""
        self.lost_power = True
        self.die()

    def live(self) -> None:
        """Run process after process, until one ends by itself."""
        while not self.ending:
            try:
                self.begun += 1
                reason = self.run()
                if reason == STOPPED:
                    self.stop.clear()
                    self._timeline.run(RESTART)
                else:
                    self.ending = reason
            except Killed:
                if self.lost_power:
                    self.lost_power = False
                    self._come_back()
                self._timeline.run(RESTART)
            except TacitError as error:
                self.error, self.ending = error, f"{type(error).__name__}: {error}"

    def _come_back(self) -> None:
        (self.folder / "ledger.db-journal").unlink(missing_ok=True)
        (self.folder / "ledger.db").write_bytes(self.durable.content)
        self._disk.crash(self.folder / "messages")
