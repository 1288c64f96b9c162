"""The ledger's file: its tables, its conversion from an older format, its rows read and written.

`chain` and `entry` are the ledger. `sender` and `message` are what it has paid for and what has no
receipt yet, of every identity (`owner`, its random id) and run; tacit_services writes them, in one
commit with the charges. `message.digest` is the SHA-256 of the envelope; one that is large lies in
a file of its own, and `envelope` is NULL.
"""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import replace
from pathlib import Path

from tacit.privacy.ledger.chain import NONCE, Chain, LedgerRow, first_head, next_head

# PRAGMA user_version. Older ones are converted: 1 (which said 0) had no chain, 2 no messages.
_FORMAT, _WITHOUT_MESSAGES = 3, 2
_CHAIN = """
CREATE TABLE IF NOT EXISTS chain (
    dataset TEXT PRIMARY KEY, lineage BLOB NOT NULL, count INTEGER NOT NULL, head BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entry (
    dataset TEXT NOT NULL, number INTEGER NOT NULL, session BLOB NOT NULL,
    sampling_rate TEXT NOT NULL, noise_multiplier TEXT NOT NULL, mechanism TEXT NOT NULL,
    secret INTEGER NOT NULL, count INTEGER NOT NULL, head BLOB NOT NULL,
    PRIMARY KEY (dataset, number)
) WITHOUT ROWID;
"""
_MESSAGES = """
CREATE TABLE IF NOT EXISTS sender (
    owner BLOB NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, receipt INTEGER, proof BLOB,
    state BLOB, PRIMARY KEY (owner, run)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS message (
    owner BLOB NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, digest BLOB NOT NULL,
    envelope BLOB, PRIMARY KEY (owner, run, seq)
) WITHOUT ROWID;
"""
_SELECT_ROWS = """
SELECT number, session, sampling_rate, noise_multiplier, mechanism, secret, count, head FROM entry
WHERE dataset = ? ORDER BY number
"""
_SELECT_OLD_ROWS = """
SELECT sampling_rate, noise_multiplier, mechanism, secret, count FROM spend
WHERE dataset = ? AND count <> 0
"""
_NO_LEDGER = (
    "has no charges in it: was it copied or moved without the ledger.db-wal of an older "
    "tacit beside it?"
)
# What reading altered bytes can raise.
DAMAGE = (sqlite3.Error, ValueError, OverflowError, TypeError, AttributeError)


def gather_into_one_file(db: sqlite3.Connection) -> None:
    """Bring everything into the one file, and keep every commit from now on in it.

    An older tacit kept charges in a write-ahead log beside it.
    """
    # A charge is on disk before anything is computed, and stays committed.
    db.execute("PRAGMA synchronous = EXTRA")
    (mode,) = db.execute("PRAGMA journal_mode = DELETE").fetchone()
    if mode == "wal":
        raise sqlite3.OperationalError("somebody reads it, and it is still to be converted")
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(" ".join(str(verdict).split()))
    (size,) = db.execute(
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    (name,) = db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()
    if name and Path(name).stat().st_size < size:  # SQLite reads zeros there
        raise sqlite3.DatabaseError("is cut short")


def keep_journal(db: sqlite3.Connection) -> None:
    """Let the rollback journal lie between commits, emptied: to delete it costs two fsyncs more."""
    db.execute("PRAGMA journal_mode = PERSIST")


def has_write_ahead_log(path: Path) -> bool:
    """Whether the file's header states a write-ahead log (version 2 of the format)."""
    with path.open("rb") as file:
        return file.read(20)[18:19] == b"\x02"


def reason(error: Exception) -> str:
    """Return what is wrong with a file that SQLite cannot read, in words."""
    if (
        isinstance(error, sqlite3.Error)
        and getattr(error, "sqlite_errorname", "") == "SQLITE_READONLY_ROLLBACK"
    ):
        return (
            "a charge was under way when its edge was killed; the edge settles that when it "
            "next starts"
        )
    return str(error)


def read_all_chains(db: sqlite3.Connection) -> list[Chain]:
    """Return every dataset's chain, not verified. Raises ValueError for a file without a chain."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found not in (_FORMAT, _WITHOUT_MESSAGES):
        if not _table_names(db):
            raise ValueError(_NO_LEDGER)
        raise ValueError(
            "is not a ledger with a chain (an edge converts an older one when it next starts)"
        )
    names = [name for (name,) in db.execute("SELECT dataset FROM chain ORDER BY dataset")]
    return [read_chain(db, name) for name in names]


def _table_names(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def create_or_convert(db: sqlite3.Connection, session: bytes, *, new: bool) -> None:
    """Make the tables of a new file, or convert an older format, within a transaction."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found == _FORMAT:
        return
    tables = _table_names(db)
    if not tables and not new:
        raise ValueError(_NO_LEDGER)
    if found != _WITHOUT_MESSAGES and (found != 0 or not tables <= {"spend"}):
        raise ValueError("was not written by this version of tacit")
    for statement in (_CHAIN + _MESSAGES).split(";"):  # not executescript, which would commit
        db.execute(statement)
    if "spend" in tables:
        _convert(db, session)
    db.execute(f"PRAGMA user_version = {_FORMAT}")


def _convert(db: sqlite3.Connection, session: bytes) -> None:
    """Chain the rows of the format without a chain, in their order, under this opening's
    session.
    """
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
            write_row(db, dataset, row, replace(entry, head=head))
        db.execute("INSERT INTO chain VALUES (?, ?, ?, ?)", (dataset, lineage, count, head))
    db.execute("DROP TABLE spend")


def write_row(db: sqlite3.Connection, dataset: str, row: int, entry: LedgerRow) -> None:
    """Write row number `row`; of one that is there already, its count and head."""
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


def drop_row(db: sqlite3.Connection, dataset: str, row: int) -> None:
    """Delete row number `row`."""
    db.execute("DELETE FROM entry WHERE dataset = ? AND number = ?", (dataset, row))


def read_chain(db: sqlite3.Connection, dataset: str) -> Chain:
    """The chain of `dataset`, as it stands. Raises ValueError for rows that no charge can make."""
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
