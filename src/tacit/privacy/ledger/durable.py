"""The edge's durable record of what it has released: charged first, never refunded.

Idea. One SQLite file lies beside the data. It has rows of equal charges in the order of their
making, joined by a hash chain (`chain.py`). It also has the messages that they have paid for
(`file.py`). It belongs to the
data, not to a run. A new run, a restarted process or a new container that takes the identity over
continues the same rows, and so the same chain.

What a reader finds. `Ledger` opens and verifies the file, charges it (`charge`, or `transaction`
with the message that a charge pays for), and reports its `history` for the accountant. Releases may
be charged *ahead*, in the commit that stores the message before them. What is ahead has begun no
release. This process takes its next releases from it, an orderly close takes it back, and every
other end leaves it charged.

Guarantee. The file alone is the ledger. A commit is in the file itself before it returns, because
SQLite runs with a rollback journal, which holds what a commit under way replaces. A write-ahead log
would keep charges in a second file. A process that is killed in the middle of a commit leaves that
to undo in `ledger.db-journal`, which the next opening does. Without that journal the file has all
that was ever acknowledged, or breaks its chain and is refused.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     ledger = Ledger(Path(folder) / "ledger.db", "digits")
...     ledger.charge(0.05, 1.2, "gaussian", secret=True, count=3)
...     ledger.close()
...     Ledger(Path(folder) / "ledger.db", "digits").charged().count  # after a restart
3
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.errors import PrivacyError
from tacit.privacy.accounting import History, merged
from tacit.privacy.accounting.history import (
    Purpose,
    UnitSide,
    for_all_purposes,
    of_all_rows,
    of_purpose,
)
from tacit.privacy.ledger.chain import NONCE, Chain, Charge, LedgerRow, first_head, next_head
from tacit.privacy.ledger.file import (
    DAMAGE,
    check_format,
    create,
    create_shared,
    drop_row,
    fixed_order,
    fixed_split,
    fixed_view,
    gather_into_one_file,
    keep_journal,
    read_chain,
    sessions_of,
    write_row,
    write_session,
)


@dataclass(frozen=True, slots=True)
class Charged:
    """The state of a ledger: releases charged in the dataset's life, and its hash chain's end."""

    count: int = 0
    head: bytes = b""


UNCHARGED = Charged()  # a new ledger's
SPLIT_KEY = 32  # bytes of the key of a split


class Ledger:
    """The releases of one dataset at one edge, on disk.

    Guarantee: what `charge` or `transaction` has acknowledged is in the file, whenever and however
    the process ends. No release begins that is not in it. A changed, dropped or moved row is
    refused at the next opening. Floats are stored as hex, so that they come back to the last bit.

    >>> ledger = Ledger(":memory:", "digits")
    >>> ledger.charge(0.05, 1.2, "gaussian", secret=True, count=3)
    >>> ledger.history()[0].noise_multiplier
    1.2
    >>> ledger.charged().count
    3
    >>> ledger.charge(0.05, 1.2, "gaussian", secret=False)  # noise from a known seed
    >>> [spend.noise_multiplier for spend in ledger.history()]
    [0.0, 1.2]
    """

    shared = False  # whether other processes charge the file
    _patience = 10.0  # seconds to wait while another process has the file

    def __init__(
        self,
        path: Path | str,
        dataset: str,
        *,
        lineage: bytes | None = None,
        question: str | None = None,
        judges: str | None = None,
    ) -> None:
        """Open or create the ledger at `path` for `dataset`, and verify its chain.

        path: ":memory:" for tests. lineage: of the ledger that is meant. With it, nothing is
        created. question: the name of the run whose questions these charges pay for, None if they
        pay for training. judges: the name of the run whose looks at held-out rows they pay for,
        beside training.

        Raises PrivacyError when the file cannot be opened, is damaged or of another format (then it
        is not changed). Raises it also when the file is missing, empty or another ledger although
        `lineage` states that one was here. Without its history an edge must not train.
        """
        self._path = path
        self._dataset = dataset
        self._session = secrets.token_bytes(NONCE)
        self._question = question
        self._run_name = question if judges is None else judges
        self._of_run: History = ()  # of a run of questions or looks, by all its processes
        self._process = os.getpid()
        try:
            if lineage is not None and not (Path(path).is_file() and Path(path).stat().st_size):
                raise ValueError("is missing or empty, but this data has been trained on")
            if Path(path).is_file():
                check_format(Path(path))
            self._db = sqlite3.connect(path, isolation_level=None, timeout=self._patience)
            with ExitStack() as undo:
                undo.callback(self._db.close)
                chain = self._prepared(lineage)
                chain.verify()
                self._take(chain)
                undo.pop_all()
        except (*DAMAGE, OSError) as error:
            raise PrivacyError(
                f"ledger {path}: {error}; refusing to train without its history"
            ) from error

    def beside(self, name: str) -> Path:
        """Return the path called `name` in the folder of the ledger's file."""
        return Path(self._path).parent / name

    def _take(self, chain: Chain) -> None:
        """Begin where `chain` ends. Raises ValueError or OverflowError as `Chain.history`."""
        self._history = chain.history()
        self.lineage = chain.lineage
        self._rows = len(chain.rows)
        # What the file has, and how far of it releases have begun: all that others charged ahead.
        self._file = self._begun = Charged(chain.count, chain.head)
        self._last: LedgerRow | None = None  # the row of this session that is still growing

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

        What was charged ahead for such releases is used first; what was for another purpose is
        taken back. A crash afterwards refunds nothing. purpose: None: what the ledger was opened
        for. side: of whose rows they are.
        Raises PrivacyError when the charge cannot be made durable (disk full, damaged file), or
        when another process has charged this file since it was opened.
        """
        if purpose is None:
            purpose = "training" if self._question is None else "question"
        charge = Charge(sampling_rate, noise_multiplier, mechanism, secret, count, purpose, side)
        self._take_back_others(charge)
        missing = count - self._ahead_for(charge)
        if missing > 0:
            try:
                with self.transaction(replace(charge, count=missing)):
                    pass
            except sqlite3.Error as error:
                raise PrivacyError(
                    f"ledger {self._path}: {error}; the release was not computed"
                ) from error
        self._begin(charge.row(self._session))

    def _take_back_others(self, charge: Charge) -> None:
        """Take back what is ahead for another purpose than that of `charge`."""
        last = self._last
        if self.ahead and last is not None and last.spend().purpose != charge.purpose:
            try:
                self._take_back()
            except sqlite3.Error as error:
                raise PrivacyError(
                    f"ledger {self._path}: {error}; the release was not computed"
                ) from error

    @contextmanager
    def transaction(self, ahead: Charge | None = None) -> Iterator[sqlite3.Connection]:
        """Commit, in one durable step, the messages that the block writes and the charge `ahead`.

        Raises sqlite3.Error, and every error of the block. Then nothing was written.
        """
        if ahead is not None:
            self._ahead_for(ahead)
        with self._commit(ahead) as db:
            yield db

    @contextmanager
    def _commit(self, charge: Charge | None) -> Iterator[sqlite3.Connection]:
        """Commit what the block writes, and `charge`; raises as `transaction`."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            if charge is None:
                moved = None
            else:
                moved = self._write(charge)
            self._db.execute("COMMIT")
        except BaseException:  # whatever the block raises: an open transaction would lock the file
            self._roll_back()
            raise
        if moved is not None:
            self._settle(*moved)

    def _settle(self, end: Charged, rows: int, last: LedgerRow) -> None:
        """Know what a commit has made true: where the chain ends, in which row, of this session."""
        self._file = end
        self._rows = rows
        self._last = last

    def read(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of a SELECT of messages. Raises sqlite3.Error."""
        return self._db.execute(query, values).fetchall()

    @property
    def ahead(self) -> int:
        """Releases that are charged and have not begun; a forked child has none of its parent's."""
        if self._process == os.getpid():
            return self._file.count - self._begun.count
        return 0

    def history(self) -> History:
        """Return everything ever released from this dataset, without what is `ahead`.

        Noise from a known seed counts as none (z = 0).
        """
        return for_all_purposes(self._history)

    def run_history(self, purpose: Purpose = "training") -> History:
        """Return what counts against the budget of this process's run, for this purpose.

        Of training it is all training ever. Questions and looks come on top: of them it is the
        run's own.
        """
        if self._question is not None:
            return self._of_run
        counted = self._of_run if purpose == "judging" else self._history
        return of_all_rows(of_purpose(counted, purpose))

    def lifetime_left(self, charge: Charge) -> int | None:
        """Return how many more releases like one of `charge` the data's lifetime pays for.

        None: it has no bound of its own, and the run's budget is for the whole history.
        """
        return None

    def lifetime_order(self, order: int) -> int:
        """Return the Rényi order at which this data's lifetime is bounded, for good.

        It is fixed, durably, at `order` if it was not before. Raises PrivacyError.
        """
        try:
            with self.transaction() as db:
                create_shared(db)
                return fixed_order(db, self._dataset, order)
        except sqlite3.Error as error:
            raise PrivacyError(f"ledger {self._path}: {error}") from error

    def split(self, held_out: float, view: str = "") -> bytes:
        """Return the key by which this data's units are held out, for good.

        view: what rows without ids are known by; "": units have ids. It is drawn, durably, if no
        split was fixed before. Raises PrivacyError where another share or view was: a unit would
        change its side.
        """
        try:
            with self.transaction() as db:
                fresh = secrets.token_bytes(SPLIT_KEY)
                key, share = fixed_split(db, self._dataset, fresh, held_out)
                known_by = fixed_view(db, self._dataset, view)
        except DAMAGE as error:
            raise PrivacyError(f"ledger {self._path}: {error}") from error
        if share != held_out:
            raise PrivacyError(
                f"evaluation.held_out={held_out:g}: the ledger of this data holds out {share:g} of "
                f"its units, for good; state {share:g}"
            )
        if known_by != view:
            raise PrivacyError(
                "evaluation.at: the rows of this data have no ids, and are held out by what they "
                "hold as an earlier run read them, for good; read the same columns and target "
                "within the same bounds, or leave out evaluation.at"
            )
        return key

    def charged(self) -> Charged:
        """Return the count and the head of this ledger, without what is `ahead`."""
        if self._begun.count:
            return self._begun
        return UNCHARGED

    def chain(self) -> Chain:
        """Return the chain from the file, what is `ahead` included. Raises PrivacyError."""
        try:
            return self._chain()
        except DAMAGE as error:
            raise PrivacyError(f"ledger {self._path}: {error}") from error

    def require(self, position: Charged) -> None:
        """Raise PrivacyError unless this ledger has come through `position`.

        Then it is an older copy, or another one's continuation.
        """
        if not position.count:
            return
        try:
            chain = self._chain()
            if chain.count < position.count:
                raise ValueError(
                    f"it has {chain.count} releases, there were {position.count} before; an older "
                    "copy was put back"
                )
            if chain.head_after(position.count) != position.head:
                raise ValueError(
                    f"its first {position.count} releases are not those that were made here; "
                    "another copy was put back"
                )
        except DAMAGE as error:
            raise PrivacyError(f"ledger {self._path}: {error}, refusing to train") from error

    def verify(self) -> None:
        """Read the rows back from the file and recompute the chain.

        Raises PrivacyError if they differ.
        """
        try:
            chain = self._chain()
            chain.verify()
            self._compare(chain)
        except DAMAGE as error:
            raise PrivacyError(f"ledger {self._path}: {error}") from error

    def _chain(self) -> Chain:
        return read_chain(self._db, self._dataset)

    def _compare(self, chain: Chain) -> None:
        """Raise ValueError unless `chain`, from the file, is what this process has made it."""
        if (chain.count, chain.head) != (self._file.count, self._file.head):
            raise ValueError(
                f"has {chain.count} charges, this process has made it {self._file.count}"
            )

    def close(self) -> None:
        """Take back what is `ahead`, in one commit, and close the file; idempotent.

        Of what is ahead nothing was computed, and no message says that it was charged.
        """
        try:
            if self.ahead:
                self._take_back()
            if self._process == os.getpid():
                self._db.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error:
            pass  # closed before, another process's, or a full disk: what is charged stays charged
        self._db.close()

    def _prepared(self, lineage: bytes | None) -> Chain:
        gather_into_one_file(self._db)
        self._db.execute("BEGIN IMMEDIATE")
        create(self._db)
        if lineage is None:
            new = secrets.token_bytes(NONCE)
            self._db.execute(
                "INSERT OR IGNORE INTO chain VALUES (?, ?, 0, ?)",
                (self._dataset, new, first_head(new, self._dataset)),
            )
        chain = read_chain(self._db, self._dataset)  # before another process may charge it
        if lineage not in (None, chain.lineage):
            raise ValueError(
                f"is not the ledger that {self._dataset} was trained with here, but another one"
            )
        self._enter(self._db, chain)
        self._db.execute("COMMIT")
        keep_journal(self._db)
        return chain

    def _enter(self, db: sqlite3.Connection, chain: Chain) -> None:
        """Write what an opening notes in the file, in the commit that opens it."""
        if self._run_name is None:
            return
        create_shared(db)
        before = sessions_of(db, self._dataset, self._run_name)
        self._of_run = merged(row.spend() for row in chain.rows if row.session in before)
        write_session(db, self._dataset, self._run_name, self._session)

    def _ahead_for(self, charge: Charge) -> int:
        """Return how many releases like `charge` are ahead; others count as begun from now on."""
        last = self._last
        if self.ahead and last is not None and last.equal_charges(charge.row(self._session)):
            return self.ahead
        if last is not None and self._file != self._begun:
            self._begin(replace(last, count=self._file.count - self._begun.count))
        return 0

    def _begin(self, entry: LedgerRow) -> None:
        head = next_head(self._begun.head, self._begun.count, entry)
        self._begun = Charged(self._begun.count + entry.count, head)
        self._history = merged([*self._history, entry.spend()])
        self._of_run = merged([*self._of_run, entry.spend()])

    def _write(self, charge: Charge) -> tuple[Charged, int, LedgerRow]:
        """Write `charge` within the transaction; returns as `_append`."""
        return self._append(charge.row(self._session))

    def _append(self, entry: LedgerRow) -> tuple[Charged, int, LedgerRow]:
        """Write an entry of this session, without its head, at the chain's end.

        Returns where the file then ends, its last row's number, and that row.
        """
        row = self._rows
        head = next_head(self._file.head, self._file.count, entry)
        end = Charged(self._file.count + entry.count, head)
        if self._last is not None and self._last.equal_charges(entry):
            entry = replace(entry, count=self._last.count + entry.count, head=head)
        else:
            entry = replace(entry, head=head)
            row += 1
        self._move(end)
        write_row(self._db, self._dataset, row, entry)
        return end, row, entry

    def _move(self, target: Charged) -> None:
        """Set where the chain ends, if the file has it where this process has left it."""
        moved = self._db.execute(
            "UPDATE chain SET count = ?, head = ? WHERE dataset = ? AND count = ? AND head = ?",
            (target.count, target.head, self._dataset, self._file.count, self._file.head),
        )
        if moved.rowcount != 1:
            raise sqlite3.IntegrityError("another process has charged it")

    def _take_back(self) -> None:
        assert self._last is not None
        row = replace(self._last, count=self._last.count - self.ahead, head=self._begun.head)
        with self.transaction() as db:
            self._move(self._begun)
            if row.count:
                write_row(db, self._dataset, self._rows, row)
            else:
                drop_row(db, self._dataset, self._rows)
        self._file = self._begun
        self._last = row if row.count else None
        self._rows -= not row.count

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the file is closed or gone, and the error that is being raised says so
