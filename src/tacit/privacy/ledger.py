"""The edge's durable record of what it has released: charged first, never refunded.

One SQLite file beside the data: rows of equal charges in the order they were made, joined by a hash
chain (`ledger_chain.py`). It belongs to the data, not to a run: a new run, a restarted process or a
new container that takes the identity over continues the same rows, and so the same chain.

The file alone is the ledger. A charge is in the file itself before `charge` returns, because SQLite
runs with a rollback journal, which holds what a charge under way replaces; a write-ahead log would
keep charges in a second file. A process that is killed in the middle of a charge leaves
`ledger.db-journal`, which the next opening takes back. Without that journal the file has all that
was ever acknowledged, or breaks its chain and is refused.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.errors import DataError, PrivacyError
from tacit.privacy.accounting import History, merged
from tacit.privacy.ledger_chain import NONCE, Chain, LedgerRow, first_head, next_head
from tacit.privacy.ledger_file import (
    DAMAGE,
    create_or_convert,
    gather_into_one_file,
    has_write_ahead_log,
    read_all_chains,
    read_chain,
    reason,
    write_row,
)


@dataclass(frozen=True, slots=True)
class Charged:
    """The state of a ledger: releases charged in the dataset's life, and its hash chain's end."""

    count: int = 0
    head: bytes = b""


UNCHARGED = Charged()  # a new ledger's


class Ledger:
    """The releases of one dataset at one edge, on disk.

    Guarantee: what `charge` has acknowledged is in the file, whenever and however the process ends;
    a changed, dropped or moved row is refused at the next opening. Floats are stored as hex, so
    that they come back to the last bit.

    >>> ledger = Ledger(":memory:", "digits")
    >>> ledger.charge(0.05, 1.2, "gaussian", secret=True, count=3)
    >>> ledger.history()
    (Spend(sampling_rate=0.05, noise_multiplier=1.2, count=3, mechanism='gaussian'),)
    >>> ledger.charged().count
    3
    >>> ledger.charge(0.05, 1.2, "gaussian", secret=False)  # noise from a known seed
    >>> [spend.noise_multiplier for spend in ledger.history()]
    [0.0, 1.2]
    """

    def __init__(self, path: Path | str, dataset: str, *, lineage: bytes | None = None) -> None:
        """Open or create the ledger at `path` (":memory:" for tests) for `dataset`, and verify its
        chain.

        lineage: of the ledger that is meant; with it, nothing is created.
        Raises PrivacyError when the file cannot be opened or is damaged, and when it is missing,
        empty or another ledger although `lineage` says that one was here: without its history an
        edge must not train.
        """
        self._path, self._dataset = path, dataset
        self._session = secrets.token_bytes(NONCE)
        try:
            if lineage is not None and not (Path(path).is_file() and Path(path).stat().st_size):
                raise ValueError("is missing or empty, but this data has been trained on")
            self._db = sqlite3.connect(path, isolation_level=None, timeout=10.0)
            with ExitStack() as undo:
                undo.callback(self._db.close)
                chain = self._prepared(lineage)
                chain.verify()
                self._history = chain.history()
                undo.pop_all()
        except (*DAMAGE, OSError) as error:
            raise PrivacyError(
                f"ledger {path}: {error}; refusing to train without its history"
            ) from error
        self.lineage = chain.lineage
        self._head, self._count, self._rows = chain.head, chain.count, len(chain.rows)
        self._last: LedgerRow | None = None  # the row of this session that is still growing

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

        A crash afterwards refunds nothing. Raises PrivacyError when the charge cannot be made
        durable (disk full, damaged file), or when another process has charged this file since it
        was opened.
        """
        entry = LedgerRow(
            self._session,
            sampling_rate.hex(),
            noise_multiplier.hex(),
            mechanism,
            secret,
            count,
            b"",
        )
        head = next_head(self._head, self._count, entry)
        if self._last is not None and self._last.equal_charges(entry):
            row = self._rows
            entry = replace(entry, count=self._last.count + count, head=head)
        else:
            row = self._rows + 1
            entry = replace(entry, head=head)
        try:
            self._write(entry, row, count)
        except sqlite3.Error as error:
            self._roll_back()
            raise PrivacyError(
                f"ledger {self._path}: {error}; the release was not computed"
            ) from error
        self._head, self._count, self._rows, self._last = head, self._count + count, row, entry
        self._history = merged([*self._history, replace(entry, count=count).spend()])

    def history(self) -> History:
        """Return everything ever released from this dataset.

        Noise from a known seed counts as none (z = 0).
        """
        return self._history

    def charged(self) -> Charged:
        """Return the number of releases charged, and the hash chain's end."""
        return Charged(self._count, self._head) if self._count else UNCHARGED

    def verify(self) -> None:
        """Read the rows back from the file and recompute the chain.

        Raises PrivacyError if they differ.
        """
        try:
            chain = read_chain(self._db, self._dataset)
            chain.verify()
            if (chain.count, chain.head) != (self._count, self._head):
                raise ValueError(
                    f"has {chain.count} charges, this process has made it {self._count}"
                )
        except DAMAGE as error:
            raise PrivacyError(f"ledger {self._path}: {error}") from error

    def close(self) -> None:
        """Close the file; idempotent."""
        self._db.close()

    def _prepared(self, lineage: bytes | None) -> Chain:
        gather_into_one_file(self._db)
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        self._db.execute("BEGIN IMMEDIATE")
        create_or_convert(self._db, self._session, new=not pages)
        if lineage is None:
            new = secrets.token_bytes(NONCE)
            self._db.execute(
                "INSERT OR IGNORE INTO chain VALUES (?, ?, 0, ?)",
                (self._dataset, new, first_head(new, self._dataset)),
            )
        self._db.execute("COMMIT")
        chain = read_chain(self._db, self._dataset)
        if lineage not in (None, chain.lineage):
            raise ValueError(
                f"is not the ledger that {self._dataset} was trained with here, but another one"
            )
        return chain

    def _write(self, entry: LedgerRow, row: int, count: int) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        moved = self._db.execute(
            "UPDATE chain SET count = count + ?, head = ? WHERE dataset = ? AND count = ? AND "
            "head = ?",
            (count, entry.head, self._dataset, self._count, self._head),
        )
        if moved.rowcount != 1:
            raise sqlite3.IntegrityError("another process has charged it")
        write_row(self._db, self._dataset, row, entry)
        self._db.execute("COMMIT")

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the file is closed or gone, and the error that is being raised says so


def read_chains(path: Path) -> list[Chain]:
    """Every dataset's chain in the ledger file at `path`, as it stands: not changed, not verified.

    Raises DataError when there is no such file, PrivacyError when it cannot be read as a ledger.
    """
    if not path.is_file():
        raise DataError(f"ledger {path}: there is no such file")
    try:
        # An older tacit's file without its log is read as immutable: else SQLite writes a new log,
        # even on a disk that must not change.
        how = (
            "mode=ro&immutable=1"
            if has_write_ahead_log(path) and not Path(f"{path}-wal").exists()
            else "mode=ro"
        )
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=10.0)
        ) as db:
            # In one transaction, so that all is read at one moment although an edge goes on
            # charging.
            db.execute("BEGIN")
            return read_all_chains(db)
    except (*DAMAGE, OSError) as error:
        raise PrivacyError(f"ledger {path}: {reason(error)}") from error


@contextmanager
def locked_chains(path: Path) -> Iterator[tuple[list[Chain], bytes]]:
    """Every chain, verified, and the bytes of the whole file, which nobody can charge until the
    end.

    What SQLite keeps beside the file is brought into it first.
    Raises DataError when there is no such file, PrivacyError when it cannot be read as a ledger or
    another process is charging it.
    """
    if not path.is_file():
        raise DataError(f"ledger {path}: there is no such file")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10.0)) as db:
        try:
            gather_into_one_file(db)
            db.execute("BEGIN IMMEDIATE")
            chains = read_all_chains(db)
            for chain in chains:
                chain.verify()
                chain.history()
            content = db.serialize()
        except DAMAGE as error:
            raise PrivacyError(f"ledger {path}: {error}") from error
        yield chains, content
