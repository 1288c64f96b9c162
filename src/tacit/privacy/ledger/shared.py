"""A ledger that several processes charge at once: the workers of one member, each for its own run.

Idea. Every charge is one transaction under SQLite's write lock. It reads where the chain ends. If
others have charged since this process looked, it reads their rows, recomputes their heads from
where it knew the chain, and counts them. Then it asks the data's lifetime, and appends its own row.
So what one process spends is in what the next one asks, in every order of commits.

What a reader finds. `charge` and `history` are those of `Ledger`. `run_history` is what this run
has spent, by all its processes. `lifetime_left` is what the data's lifetime still pays for.

Nothing is charged ahead. What is ahead is taken back at an orderly end. That works for the last row
of a chain only: once another process has charged, its heads are computed from the rows before.

Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ours = SharedLedger(Path(folder) / "ledger.db", "digits", run="first")
    ...     theirs = SharedLedger(Path(folder) / "ledger.db", "digits", run="second")
    ...     ours.charge(0.05, 1.2, "gaussian", secret=True)
    ...     theirs.charge(0.05, 2.0, "gaussian", secret=True)
    ...     [spend.noise_multiplier for spend in theirs.history()], theirs.charged().count
    ...     [spend.noise_multiplier for spend in theirs.run_history()], ours.charged().count
    ([1.2, 2.0], 2)
    ([2.0], 1)
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tacit import file_lock
from tacit.errors import PrivacyError
from tacit.privacy.accounting import History, Lifetime, merged
from tacit.privacy.ledger.chain import Chain, Charge, LedgerRow, walked
from tacit.privacy.ledger.durable import Charged, Ledger
from tacit.privacy.ledger.file import (
    DAMAGE,
    create_shared,
    fixed_order,
    read_end,
    read_rows,
    sessions_of,
    write_session,
)


class SharedLedger(Ledger):
    """The releases of one dataset, which other processes charge as well.

    Guarantee: as of `Ledger`. Besides, all charges of all processes form one chain, and none passes
    the data's lifetime. One process at a time charges for a run.
    """

    shared = True
    _patience = 60.0  # each of the others may have its turn before

    def __init__(
        self,
        path: Path | str,
        dataset: str,
        *,
        run: str,
        lifetime: Lifetime | None = None,
        lineage: bytes | None = None,
    ) -> None:
        """Open or create the ledger at `path` for `dataset`, and verify its chain.

        run: a name that no other run at this data has, whose own budget counts its own charges.
        lifetime: the bound on all charges; None: there is none. Raises PrivacyError as `Ledger`,
        and where the ledger's lifetime was begun at another order.
        """
        self._run = run
        self._lifetime = lifetime
        try:
            self._turns = os.open(f"{path}.turns", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise PrivacyError(f"ledger {path}: {error.strerror or error}") from error
        self._end_turns = weakref.finalize(self, os.close, self._turns)
        with ExitStack() as undo:
            undo.callback(self._end_turns)
            super().__init__(path, dataset, lineage=lineage)
            undo.pop_all()

    @contextmanager
    def _commit(self, charge: Charge | None) -> Iterator[sqlite3.Connection]:
        with self._turn(), super()._commit(charge) as db:
            yield db

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one process after the other write.

        SQLite alone lets a process wait ever longer between its tries, while others go on charging.
        """
        file_lock.take(self._turns)
        try:
            yield
        finally:
            file_lock.release(self._turns)

    def charge(
        self,
        sampling_rate: float,
        noise_multiplier: float,
        mechanism: str,
        *,
        secret: bool,
        count: int = 1,
    ) -> None:
        """Record `count` equal releases, durably, before any of them is computed.

        A crash afterwards refunds nothing. Raises BudgetSpent, and charges nothing, if the data's
        lifetime does not pay for all of them. Raises PrivacyError when the charge cannot be made
        durable, when the others' rows do not continue the chain, and when another process charges
        for the same run.
        """
        charge = Charge(sampling_rate, noise_multiplier, mechanism, secret, count)
        try:
            with self._commit(charge):
                pass
        except (*DAMAGE, OSError) as error:
            raise PrivacyError(
                f"ledger {self._path}: {error}; the release was not computed"
            ) from error

    @contextmanager
    def transaction(self, ahead: Charge | None = None) -> Iterator[sqlite3.Connection]:
        """Commit, in one durable step, the messages that the block writes.

        Raises sqlite3.Error, and what the block raises. Then nothing was written.
        """
        assert ahead is None, "a shared ledger is not charged ahead"
        with self._commit(None) as db:
            yield db

    @property
    def ahead(self) -> int:
        """Releases that are charged and have not begun: none."""
        return 0

    def run_history(self) -> History:
        """Return what this run has released, by all its processes up to now."""
        return self._of_run

    def lifetime_left(self, charge: Charge) -> int | None:
        """Return how many more releases like one of `charge` the data's lifetime pays for now.

        None: there is no such bound. Others may spend them first. Raises PrivacyError as `charge`.
        """
        if self._lifetime is None:
            return None
        try:
            with self._reading():
                self._catch_up()
        except DAMAGE as error:
            raise PrivacyError(f"ledger {self._path}: {error}") from error
        return self._lifetime.left(self._known, charge.spend())

    def close(self) -> None:
        """Close the file; idempotent. Others go on: what SQLite keeps beside it stays."""
        self._db.close()
        self._end_turns()

    def _prepared(self, lineage: bytes | None) -> Chain:
        with self._turn():
            return super()._prepared(lineage)

    def _take(self, chain: Chain) -> None:
        super()._take(chain)
        self._known = self._history  # of all rows that were read; `_history` ends where we charged
        self._tail = chain.rows[-1] if chain.rows else None

    def _enter(self, db: sqlite3.Connection, chain: Chain) -> None:
        create_shared(db)
        if self._lifetime is not None:
            order = fixed_order(db, self._dataset, self._lifetime.order)
            if order != self._lifetime.order:
                raise ValueError(
                    f"its lifetime is bounded at order {order}, which never changes, and this is "
                    f"order {self._lifetime.order}"
                )
        before = sessions_of(db, self._dataset, self._run)
        self._of_run = merged(row.spend() for row in chain.rows if row.session in before)
        write_session(db, self._dataset, self._run, self._session)

    def _write(self, charge: Charge) -> tuple[Charged, int, LedgerRow]:
        self._catch_up()
        if self._lifetime is not None:
            self._lifetime.check(self._known, charge.spend())
        return super()._write(charge)

    def _settle(self, end: Charged, rows: int, last: LedgerRow) -> None:
        spend = replace(last, count=end.count - self._file.count).spend()
        super()._settle(end, rows, last)
        self._tail = last
        self._of_run = merged([*self._of_run, spend])
        self._known = self._history = merged([*self._known, spend])
        self._begun = end

    def _catch_up(self) -> None:
        """Read and count, within a transaction, what others have charged since.

        Raises ValueError where it does not continue the chain from where this process knew it, and
        PrivacyError where another process charges for the same run.
        """
        end = Charged(*read_end(self._db, self._dataset))
        if end == self._file:
            return
        first = max(self._rows, 1)
        rows = read_rows(self._db, self._dataset, first)
        fresh = self._fresh(rows)
        number = first + len(rows) - len(fresh)
        reached = walked(self._dataset, fresh, self._file.count, self._file.head, end.count, number)
        if reached != (end.count, end.head):
            raise ValueError(f"has {end.count} charges, its rows end after {reached[0]}")
        self._refuse_same_run(fresh)
        self._file = end
        self._rows = first + len(rows) - 1
        self._tail = rows[-1]
        self._last = None
        self._known = merged([*self._known, *(row.spend() for row in fresh)])

    def _fresh(self, rows: tuple[LedgerRow, ...]) -> tuple[LedgerRow, ...]:
        """Return what is new of `rows`, which begin with the last known one: it may have grown."""
        tail = self._tail
        if tail is None:
            return rows
        if not rows or not rows[0].equal_charges(tail) or rows[0].count < tail.count:
            raise ValueError(f"row {self._rows} of {self._dataset}: was changed")
        more = rows[0].count - tail.count
        if more:
            return (replace(rows[0], count=more), *rows[1:])
        return rows[1:]

    def _refuse_same_run(self, rows: tuple[LedgerRow, ...]) -> None:
        sessions = sessions_of(self._db, self._dataset, self._run)
        if any(row.session in sessions for row in rows):
            raise PrivacyError(
                f"ledger {self._path}: another process charges it for run {self._run}; one at a "
                f"time does, and this one ends"
            )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read one state of the file in the block."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    def _chain(self) -> Chain:
        with self._reading():
            return super()._chain()

    def _compare(self, chain: Chain) -> None:
        """Raise ValueError unless `chain` has come through what this process knows of it."""
        if chain.count < self._file.count or chain.head_after(self._file.count) != self._file.head:
            raise ValueError(f"has {chain.count} charges, there were {self._file.count} others")
