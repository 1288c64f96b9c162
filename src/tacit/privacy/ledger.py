"""The edge's durable record of what it has released: charged first, never refunded.

One SQLite file beside the data: rows of equal charges in the order they were made, joined by a hash chain
(`chain.py`). It belongs to the data, not to a run: a new run, a restarted process or a new container that takes the
identity over continues the same rows, and so the same chain.

The file alone is the ledger. SQLite's rollback journal holds what a charge under way replaces, so that a charge is in
the file itself before `charge` returns (a write-ahead log would keep charges in a second file). Who is killed in the
middle of one leaves `ledger.db-journal`, which the next opening takes back; without it the file has all that was ever
acknowledged, or breaks its chain and is refused.
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

_FORMAT = 2  # PRAGMA user_version; 1 (which said 0) had no chain, and becomes 2 when it is opened
_SCHEMA = """
CREATE TABLE IF NOT EXISTS chain (
    dataset TEXT PRIMARY KEY, lineage BLOB NOT NULL, count INTEGER NOT NULL, head BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entry (
    dataset TEXT NOT NULL, number INTEGER NOT NULL, session BLOB NOT NULL, sampling_rate TEXT NOT NULL,
    noise_multiplier TEXT NOT NULL, mechanism TEXT NOT NULL, secret INTEGER NOT NULL, count INTEGER NOT NULL,
    head BLOB NOT NULL, PRIMARY KEY (dataset, number)) WITHOUT ROWID;
"""
_SELECT_ROWS = """
SELECT number, session, sampling_rate, noise_multiplier, mechanism, secret, count, head FROM entry
WHERE dataset = ? ORDER BY number
"""
_SELECT_OLD_ROWS = "SELECT sampling_rate, noise_multiplier, mechanism, secret, count FROM spend WHERE dataset = ? AND count <> 0"
_NO_LEDGER = "has no charges in it: was it copied or moved without the ledger.db-wal of an older tacit beside it?"
_DAMAGE = (
    sqlite3.Error,
    ValueError,
    OverflowError,
    TypeError,
    AttributeError,
)  # what reading altered bytes can raise


@dataclass(frozen=True, slots=True)
class Charged:
    """How far a ledger has come: releases charged in the dataset's life, and the end of its hash chain."""

    count: int = 0
    head: bytes = b""


UNCHARGED = Charged()  # a new ledger's


class Ledger:
    """The spend of one dataset at one edge. Floats are stored as hex, so that they come back to the last bit."""

    def __init__(self, path: Path | str, dataset: str, *, lineage: bytes | None = None) -> None:
        """Open or create the ledger at `path` (":memory:" for tests) for `dataset`, and verify its chain.

        With `lineage` (of the ledger that is meant) nothing is created. Raises PrivacyError when the file cannot be
        opened, is damaged, or is missing, empty or another ledger although `lineage` says that one was here: without
        its history an edge must not train.
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
        except (*_DAMAGE, OSError) as error:
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
        """Record `count` equal releases, durably, before any is computed. A crash afterwards refunds nothing.

        Raises PrivacyError when the charge cannot be made durable (disk full, damaged file), or when another process
        has charged this file since it was opened.
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
        more = self._last is not None and self._last.equal_charges(entry)
        entry = replace(
            entry, count=self._last.count + count if self._last and more else count, head=head
        )
        row = self._rows + (not more)
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
        """Everything ever released from this dataset. Noise from a known seed counts as no noise (z = 0)."""
        return self._history

    def charged(self) -> Charged:
        """How far this ledger has come."""
        return Charged(self._count, self._head) if self._count else UNCHARGED

    def verify(self) -> None:
        """Read the rows back from the file and recompute the chain. Raises PrivacyError when they differ from it."""
        try:
            chain = _read_chain(self._db, self._dataset)
            chain.verify()
            if (chain.count, chain.head) != (self._count, self._head):
                raise ValueError(
                    f"has {chain.count} charges, this process has made it {self._count}"
                )
        except _DAMAGE as error:
            raise PrivacyError(f"ledger {self._path}: {error}") from error

    def close(self) -> None:
        """Close the file; idempotent."""
        self._db.close()

    def _prepared(self, lineage: bytes | None) -> Chain:
        _gather_into_one_file(self._db)
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        self._db.execute("BEGIN IMMEDIATE")
        _create_or_convert(self._db, self._session, new=not pages)
        if lineage is None:
            new = secrets.token_bytes(NONCE)
            self._db.execute(
                "INSERT OR IGNORE INTO chain VALUES (?, ?, 0, ?)",
                (self._dataset, new, first_head(new, self._dataset)),
            )
        self._db.execute("COMMIT")
        chain = _read_chain(self._db, self._dataset)
        if lineage not in (None, chain.lineage):
            raise ValueError(
                f"is not the ledger that {self._dataset} was trained with here, but another one"
            )
        return chain

    def _write(self, entry: LedgerRow, row: int, count: int) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        moved = self._db.execute(
            "UPDATE chain SET count = count + ?, head = ? WHERE dataset = ? AND count = ? AND head = ?",
            (count, entry.head, self._dataset, self._count, self._head),
        )
        if moved.rowcount != 1:
            raise sqlite3.IntegrityError("another process has charged it")
        _write_row(self._db, self._dataset, row, entry)
        self._db.execute("COMMIT")

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # closed, or gone: the error that is being raised says so


def read_chains(path: Path) -> list[Chain]:
    """Every dataset's chain in the ledger file at `path`, as it stands; the file is not changed, nor verified.

    Raises DataError when there is no such file, PrivacyError when it cannot be read as a ledger.
    """
    if not path.is_file():
        raise DataError(f"ledger {path}: there is no such file")
    try:
        # An older tacit's file without its log is read as it is: SQLite would want to write a new log, on any disk.
        how = (
            "mode=ro&immutable=1"
            if _has_write_ahead_log(path) and not Path(f"{path}-wal").exists()
            else "mode=ro"
        )
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=10.0)
        ) as db:
            db.execute(
                "BEGIN"
            )  # one state of the file for all that is read, though an edge goes on charging
            return _read_all_chains(db)
    except (*_DAMAGE, OSError) as error:
        raise PrivacyError(f"ledger {path}: {_reason(error)}") from error


@contextmanager
def locked_chains(path: Path) -> Iterator[tuple[list[Chain], bytes]]:
    """Every chain, verified, and the bytes of the whole file; nobody can charge it until the end.

    What SQLite keeps beside the file is brought into it first. Raises DataError when there is no such file,
    PrivacyError when it cannot be read as a ledger, or somebody is charging it.
    """
    if not path.is_file():
        raise DataError(f"ledger {path}: there is no such file")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10.0)) as db:
        try:
            _gather_into_one_file(db)
            db.execute("BEGIN IMMEDIATE")
            chains = _read_all_chains(db)
            for chain in chains:
                chain.verify()
                chain.history()
            content = db.serialize()
        except _DAMAGE as error:
            raise PrivacyError(f"ledger {path}: {error}") from error
        yield chains, content


def _gather_into_one_file(db: sqlite3.Connection) -> None:
    """Everything into the one file, and every commit from now on: an older tacit kept charges in a log beside it."""
    db.execute(
        "PRAGMA synchronous = EXTRA"
    )  # a charge is on disk before anything is computed, and stays committed
    (mode,) = db.execute("PRAGMA journal_mode = DELETE").fetchone()
    if mode == "wal":
        raise sqlite3.OperationalError("somebody reads it, and it is still to be converted")
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(" ".join(str(verdict).split()))


def _has_write_ahead_log(path: Path) -> bool:
    """Whether the file is one that goes with a write-ahead log (version 2 in the format's header)."""
    with path.open("rb") as file:
        return file.read(20)[18:19] == b"\x02"


def _reason(error: Exception) -> str:
    if (
        isinstance(error, sqlite3.Error)
        and getattr(error, "sqlite_errorname", "") == "SQLITE_READONLY_ROLLBACK"
    ):
        return "a charge was under way when its edge was killed; the edge settles that when it next starts"
    return str(error)


def _read_all_chains(db: sqlite3.Connection) -> list[Chain]:
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found != _FORMAT:
        if not _table_names(db):
            raise ValueError(_NO_LEDGER)
        raise ValueError(
            "is not a ledger with a chain (an edge converts an older one when it next starts)"
        )
    names = [name for (name,) in db.execute("SELECT dataset FROM chain ORDER BY dataset")]
    return [_read_chain(db, name) for name in names]


def _table_names(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _create_or_convert(db: sqlite3.Connection, session: bytes, *, new: bool) -> None:
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found == _FORMAT:
        return
    tables = _table_names(db)
    if not tables and not new:
        raise ValueError(_NO_LEDGER)
    if found != 0 or not tables <= {"spend"}:
        raise ValueError("was not written by this version of tacit")
    for statement in _SCHEMA.split(";"):  # not executescript, which would commit
        db.execute(statement)
    if tables:
        _convert(db, session)
    db.execute(f"PRAGMA user_version = {_FORMAT}")


def _convert(db: sqlite3.Connection, session: bytes) -> None:
    """The rows of the format without a chain, chained in their order under this opening's session."""
    for (dataset,) in db.execute("SELECT DISTINCT dataset FROM spend").fetchall():
        lineage, count = secrets.token_bytes(NONCE), 0
        head = first_head(lineage, dataset)
        rows = db.execute(_SELECT_OLD_ROWS, (dataset,)).fetchall()
        for row, (q, z, mechanism, secret, n) in enumerate(rows, 1):
            if not 0 < n < 2**32 or secret not in (0, 1):
                raise ValueError("a row that no charge can have written")
            entry = LedgerRow(session, q, z, mechanism, bool(secret), n, b"")
            head = next_head(head, count, entry)
            count += n
            _write_row(db, dataset, row, replace(entry, head=head))
        db.execute("INSERT INTO chain VALUES (?, ?, ?, ?)", (dataset, lineage, count, head))
    db.execute("DROP TABLE spend")


def _write_row(db: sqlite3.Connection, dataset: str, row: int, entry: LedgerRow) -> None:
    fields = (
        entry.session,
        entry.sampling_rate,
        entry.noise_multiplier,
        entry.mechanism,
        int(entry.secret),
    )
    db.execute(
        "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (dataset, number) DO UPDATE SET count = excluded.count, head = excluded.head",
        (dataset, row, *fields, entry.count, entry.head),
    )


def _read_chain(db: sqlite3.Connection, dataset: str) -> Chain:
    found = db.execute(
        "SELECT lineage, count, head FROM chain WHERE dataset = ?", (dataset,)
    ).fetchone()
    if found is None:
        raise ValueError(f"has no charges of {dataset}, but this data has been trained on")
    rows = db.execute(_SELECT_ROWS, (dataset,)).fetchall()
    if any(row[0] != place or row[5] not in (0, 1) for place, row in enumerate(rows, 1)):
        raise ValueError(f"{dataset}: a row is missing, or is one that no charge can have written")
    entries = tuple(
        LedgerRow(s, q, z, m, bool(secret), n, head) for _, s, q, z, m, secret, n, head in rows
    )
    lineage, count, head = found
    return Chain(dataset, lineage, count, head, entries)
