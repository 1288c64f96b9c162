"""A member with two runs at once: a process for each, and one ledger file that both charge.

The processes are edges as in one run, each with a network and messages of its own. Either may die
alone. The machine loses its power for both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import greenlet

from tacit.privacy.accounting import Lifetime
from tacit.privacy.ledger import Charged, Ledger, SharedLedger, read_chains
from tacit.privacy.ledger.chain import Chain, Charge, LedgerRow
from tests.helpers.simulated_edge import Killed
from tests.schedules.machine import FULL, Machine
from tests.schedules.shared_time import SharedTime

LONG = Lifetime(epsilon=12.0, delta=1e-5, order=3)  # of data that both runs' tasks leave much of
SHORT = Lifetime(epsilon=3.7, delta=1e-5, order=5)  # pays for 6 releases
_RELEASES = "COALESCE(SUM(CASE WHEN mechanism LIKE '%:returned' THEN -count ELSE count END), 0)"
_CHARGED_FOR = f"""
SELECT run, {_RELEASES} FROM entry JOIN run_session USING (dataset, session) GROUP BY run
"""


class DurableSharedLedger(SharedLedger):
    """A shared ledger that notes after each commit what has reached the disk.

    Its process may die around every commit, a charge's too.
    """

    def __init__(
        self, member: Member, dataset: str, run: str, point: Callable[[str], None]
    ) -> None:
        self._member, self._point = member, point
        super().__init__(member.ledger, dataset, run=run, lifetime=member.lifetime)
        member.note(self._db)

    def charge(self, *release: Any, count: int = 1, **more: Any) -> None:
        """As the ledger's."""
        self._member.largest = max(self._member.largest, count)
        super().charge(*release, count=count, **more)

    def _written_if_paid(self, ahead: Charge) -> tuple[Charged, int, LedgerRow] | None:
        self._member.largest = max(self._member.largest, ahead.count)
        return super()._written_if_paid(ahead)

    @contextmanager
    def _commit(self, charge: Charge | None) -> Iterator[sqlite3.Connection]:
        self._point("before the commit")
        with super()._commit(charge) as db:
            yield db
            self._point("in the commit")
        self._member.note(self._db)
        self._point("after the commit")

    def close(self) -> None:
        """As the ledger's; then its file is as it was closed."""
        super().close()
        self._member.note_content()

    def abandon(self) -> None:
        """Close the files as a process that is killed does: nothing is given back."""
        self._db.close()
        self._end_turns()


class Member:
    """What the processes of one member share.

    lifetime: its data's. ledger: its file. charged: durable releases in it, of all runs. largest:
    of one charge. workers: by run.
    """

    def __init__(self, folder: Path, lifetime: Lifetime) -> None:
        self.lifetime = lifetime
        self.ledger = folder / "ledger.db"
        self.charged = self.largest = 0
        self.workers: dict[str, Worker] = {}
        self._content = b""

    def note(self, db: sqlite3.Connection) -> None:
        """Note the file as it is, if the last commit was durable."""
        if db.execute("PRAGMA synchronous").fetchone()[0] < FULL:
            return
        self.note_content()
        (self.charged,) = db.execute(f"SELECT {_RELEASES} FROM entry").fetchone()
        charged = dict(db.execute(_CHARGED_FOR).fetchall())
        rows = db.execute("SELECT run, seq, envelope FROM message").fetchall()
        for run, worker in self.workers.items():
            worker.durable.charged = charged.get(run, 0)
            messages = {seq: envelope for of_run, seq, envelope in rows if of_run == run}
            worker.durable.messages = {
                seq: worker.in_file(seq) if envelope is None else envelope
                for seq, envelope in messages.items()
            }

    def note_content(self) -> None:
        """Note the bytes of the file."""
        self._content = self.ledger.read_bytes()

    def die(self, first: Worker) -> None:
        """Kill the processes but `first`, which dies by itself."""
        for worker in self.workers.values():
            if worker is not first:
                worker.perish()

    def come_back(self) -> None:
        """Put the disk back to what was durable, as its machine has lost its power."""
        Path(f"{self.ledger}-journal").unlink(missing_ok=True)
        self.ledger.write_bytes(self._content)
        for worker in self.workers.values():
            worker.lose_messages()

    def charged_for(self, run: str) -> int:
        """Return the releases of a run that the file has, as another process reads it."""
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True)) as db:
            return int(dict(db.execute(_CHARGED_FOR).fetchall()).get(run, 0))

    def chain(self) -> Chain:
        """Return the chain of the file, verified. Raises ValueError where it is broken."""
        (chain,) = read_chains(self.ledger)
        chain.verify()
        return chain


class Worker(Machine):
    """The processes of a member in one run."""

    def __init__(self, member: Member, *where: Any, **how: Any) -> None:
        """where, how: as of Machine."""
        super().__init__(*where, **how)
        self._member = member
        self._shared: DurableSharedLedger | None = None
        self._stack: greenlet.greenlet
        member.workers[self.run_id] = self

    def open_ledger(self, path: Path, dataset: str) -> Ledger:
        """Open the member's ledger for this run."""
        self._shared = DurableSharedLedger(self._member, dataset, self.run_id, self._pass)
        return self._shared

    def let_go(self, ledger: Ledger) -> None:
        """Close the file, and the one that turns are taken with, as a killed process does."""
        assert isinstance(ledger, DurableSharedLedger)
        ledger.abandon()

    @property
    def charged(self) -> int:
        """The releases of this run that the ledger's file has."""
        return self._member.charged_for(self.run_id)

    def live(self) -> None:
        """As a machine's."""
        self._stack = greenlet.getcurrent()
        super().live()

    def lose_power(self) -> None:
        """Kill both processes with their machine; an action for `at`."""
        self._member.die(self)
        super().lose_power()

    def die_with_other(self) -> None:
        """Kill both processes; an action for `at`."""
        self._member.die(self)
        self.die()

    def perish(self) -> None:
        """Kill the process, if there is one, while it waits."""
        if self._runs:
            assert self._shared is not None
            self._network.connection(self.name).kill()
            self.let_go(self._shared)
            assert isinstance(self._timeline, SharedTime)
            self._timeline.interrupt(self._stack, Killed())

    def lose_messages(self) -> None:
        """Put the files of messages back to what was durable."""
        self._disk.crash(self.folder / "messages")

    def _come_back(self) -> None:
        self._member.come_back()
