"""A ledger that several processes charge at once: the workers of one member, each for its own run.

Idea. Every charge is one transaction under SQLite's write lock. It reads where the chain ends. If
others have charged since this process looked, it reads their rows, recomputes their heads from
where it knew the chain, and counts them. Then it asks the data's lifetime, and appends its own row.
So what one process spends is in what the next one asks, in every order of commits.

What a reader finds. `charge` and `history` are those of `Ledger`. `run_history` is what this run
has spent, by all its processes. `lifetime_left` is what the data's lifetime still pays for.

What is charged ahead is not taken out of the chain at an orderly end, as others may have charged
since, whose heads are computed from the rows before. A row of its own gives it back.

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
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tacit import file_lock
from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import History, Lifetime, merged
from tacit.privacy.accounting.history import Purpose, UnitSide, of_all_rows, of_purpose
from tacit.privacy.ledger.chain import Chain, Charge, LedgerRow, next_head, walked
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


@dataclass(frozen=True, slots=True)
class _ChargedAhead:
    """Charges of this process that have begun no release.

    row: them, with their count. start: where the chain ended before them. known: all charges there.
    """

    row: LedgerRow
    start: Charged
    known: History

    def begun(self, count: int) -> tuple[Charged, History]:
        """Return where the chain ends after the first `count` of them, and all charges there."""
        head = next_head(self.start.head, self.start.count, self.row, count)
        spend = replace(self.row, count=count).spend()
        return Charged(self.start.count + count, head), merged([*self.known, spend])

    def rest(self, count: int) -> _ChargedAhead:
        """Return what is left of them once the first `count` have begun."""
        row = replace(self.row, count=self.row.count - count)
        return _ChargedAhead(row, *self.begun(count))


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
        purpose: Purpose | None = None,
        side: UnitSide = "both",
    ) -> None:
        """Record `count` equal releases, durably, before any of them is computed.

        A crash afterwards refunds nothing. Raises BudgetSpent, and charges nothing, if the data's
        lifetime does not pay for all of them. Raises PrivacyError when the charge cannot be made
        durable, when the others' rows do not continue the chain, and when another process charges
        for the same run.
        """
        charge = Charge(
            sampling_rate, noise_multiplier, mechanism, secret, count, purpose or "training", side
        )
        try:
            self._give_back(others_than=charge)
            missing = count - self._ahead_for(charge)
            if missing > 0:
                with self._commit(replace(charge, count=missing)):
                    pass
        except (*DAMAGE, OSError) as error:
            raise PrivacyError(
                f"ledger {self._path}: {error}; the release was not computed"
            ) from error
        self._begin(charge.row(self._session))

    @contextmanager
    def transaction(self, ahead: Charge | None = None) -> Iterator[sqlite3.Connection]:
        """Commit, in one durable step, the messages that the block writes and the charge `ahead`.

        Where the data's lifetime does not pay for all of `ahead`, the messages alone are committed.
        Raises sqlite3.Error, what the block raises, and PrivacyError where the others' rows do not
        continue the chain. Then nothing was written.
        """
        moved = None
        with self._commit(None) as db:
            yield db
            if ahead is not None:
                moved = self._written_if_paid(ahead)
        if moved is not None:
            self._settle(*moved)

    def _written_if_paid(self, ahead: Charge) -> tuple[Charged, int, LedgerRow] | None:
        """Write `ahead` within the transaction; None: the lifetime does not pay for it."""
        try:
            return self._write(ahead)
        except BudgetSpent:
            return None
        except (ValueError, OverflowError, TypeError, AttributeError) as error:
            raise PrivacyError(f"ledger {self._path}: {error}; nothing was written") from error

    @property
    def ahead(self) -> int:
        """Releases that are charged and have not begun; a forked child has none of its parent's."""
        return sum(part.row.count for part in self._parts())

    def run_history(self, purpose: Purpose = "training") -> History:
        """Return what this run has released for this purpose, by all its processes up to now."""
        return of_all_rows(of_purpose(self._of_run, purpose))

    def lifetime_left(self, charge: Charge) -> int | None:
        """Return how many more releases like one of `charge` the data's lifetime pays for now.

        Those that are `ahead` are among them. None: there is no such bound. Others may spend them
        first. Raises PrivacyError as `charge`.
        """
        if self._lifetime is None:
            return None
        try:
            with self._reading():
                self._catch_up()
        except DAMAGE as error:
            raise PrivacyError(f"ledger {self._path}: {error}") from error
        paid = (replace(part.row, count=-part.row.count).spend() for part in self._parts())
        return self._lifetime.left(merged([*self._known, *paid]), charge.spend())

    def close(self) -> None:
        """Give back what is `ahead`, in one commit, and close the file; idempotent.

        Others go on: what SQLite keeps beside it stays.
        """
        try:
            self._give_back()
        except (*DAMAGE, OSError, PrivacyError):
            pass  # closed before, a full disk, another process's run: what is charged stays charged
        self._db.close()
        self._end_turns()

    def _prepared(self, lineage: bytes | None) -> Chain:
        with self._turn():
            return super()._prepared(lineage)

    def _take(self, chain: Chain) -> None:
        super()._take(chain)
        self._known = self._history  # of all rows that were read; `_history` ends where we charged
        self._tail = chain.rows[-1] if chain.rows else None
        self._charged_ahead: deque[_ChargedAhead] = deque()

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
        start, known = self._file, self._known
        fresh = replace(last, count=end.count - start.count)
        super()._settle(end, rows, last)
        self._tail = last
        self._known = merged([*known, fresh.spend()])
        if not fresh.returned:
            self._charged_ahead.append(_ChargedAhead(fresh, start, known))

    def _parts(self) -> deque[_ChargedAhead]:
        """Return what is ahead; what this process has of its parent's is forgotten."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._charged_ahead.clear()
        return self._charged_ahead

    def _ahead_for(self, charge: Charge) -> int:
        row = charge.row(self._session)
        return sum(part.row.count for part in self._parts() if part.row.equal_charges(row))

    def _begin(self, entry: LedgerRow) -> None:
        """Let `entry`, which is ahead, begin: it is used, and this process's position follows it.

        What is ahead of other kinds was given back before.
        """
        missing = entry.count
        while missing:
            part = self._parts().popleft()
            count = min(missing, part.row.count)
            self._begun, self._history = part.begun(count)
            if count < part.row.count:
                self._charged_ahead.appendleft(part.rest(count))
            missing -= count
        self._of_run = merged([*self._of_run, entry.spend()])

    def _give_back(self, others_than: Charge | None = None) -> None:
        """Give back what is ahead, or what is of it for other releases than `others_than`.

        Nothing of it was computed, and no message states that it was charged.
        """
        kept = None if others_than is None else others_than.row(self._session)
        for part in tuple(self._parts()):
            if kept is None or not part.row.equal_charges(kept):
                # First, as a commit that fails may be in the file: then it must not be used either.
                self._charged_ahead.remove(part)
                with self._commit(None):
                    self._catch_up()
                    moved = self._append(part.row.given_back())
                self._settle(*moved)

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
