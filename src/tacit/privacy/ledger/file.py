"""The ledger's file: its format, its tables, its rows read and written.

`chain` and `entry` are the ledger. `sender` and `message` are what it has paid for and what has no
receipt yet, of every identity (`owner`, its random id) and run. tacit_services writes them, in one
commit with the charges. `message.digest` is the SHA-256 of the envelope. A large envelope lies in a
file of its own, and `envelope` is NULL. `accepted` has, for each of them, a hash over all messages
that its run has accepted. An earlier tacit passes over it.

A ledger that several processes charge has two tables more, which an earlier tacit passes over.
`run_session` states which run each opening of the file was for. `lifetime` has the Rényi order at
which the data's lifetime is bounded. `split` has the key by which units are held out, and the share
of them, from the first run on that judges at its edges. `split_view` has what rows without ids are
known by there.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tacit.errors import other_format
from tacit.privacy.ledger.chain import Chain, LedgerRow

_FORMAT = 3  # PRAGMA user_version; 2 had no messages and a write-ahead log beside it
_SQLITE = b"SQLite format 3\0"
# bytes of a SQLite file, and where its user_version is
_HEADER = 100
_VERSION = slice(60, 64)
_TABLES = """
CREATE TABLE IF NOT EXISTS chain (
    dataset TEXT PRIMARY KEY, lineage BLOB NOT NULL, count INTEGER NOT NULL, head BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entry (
    dataset TEXT NOT NULL, number INTEGER NOT NULL, session BLOB NOT NULL,
    sampling_rate TEXT NOT NULL, noise_multiplier TEXT NOT NULL, mechanism TEXT NOT NULL,
    secret INTEGER NOT NULL, count INTEGER NOT NULL, head BLOB NOT NULL,
    PRIMARY KEY (dataset, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sender (
    owner BLOB NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, receipt INTEGER, proof BLOB,
    state BLOB, PRIMARY KEY (owner, run)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS message (
    owner BLOB NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, digest BLOB NOT NULL,
    envelope BLOB, PRIMARY KEY (owner, run, seq)
) WITHOUT ROWID;
"""
_SHARED_TABLES = """
CREATE TABLE IF NOT EXISTS run_session (
    dataset TEXT NOT NULL, run TEXT NOT NULL, session BLOB NOT NULL,
    PRIMARY KEY (dataset, run, session)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lifetime (
    dataset TEXT PRIMARY KEY, renyi_order INTEGER NOT NULL
) WITHOUT ROWID;
"""
_SPLIT_TABLES = """
CREATE TABLE IF NOT EXISTS split (
    dataset TEXT PRIMARY KEY, key BLOB NOT NULL, held_out TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS split_view (
    dataset TEXT PRIMARY KEY, view TEXT NOT NULL
) WITHOUT ROWID
"""
_SELECT_ROWS = """
SELECT number, session, sampling_rate, noise_multiplier, mechanism, secret, count, head FROM entry
WHERE dataset = ? AND number >= ? ORDER BY number
"""
# What reading altered bytes can raise.
DAMAGE = (sqlite3.Error, ValueError, OverflowError, TypeError, AttributeError)


def is_database(path: Path) -> bool:
    """Return whether there is a file at `path` that begins as one of SQLite."""
    return path.is_file() and _header(path).startswith(_SQLITE)


def check_format(path: Path) -> None:
    """Raise ValueError where the file at `path` is a ledger of another format; nothing is changed.

    A file that is no database passes: SQLite says so when it is opened. An older file may have its
    format in its write-ahead log alone.
    """
    header = _header(path)
    version = int.from_bytes(header[_VERSION])
    if header.startswith(_SQLITE) and version != _FORMAT:
        raise ValueError(other_format(version or None, _FORMAT))


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER)


def gather_into_one_file(db: sqlite3.Connection) -> None:
    """Bring everything into the one file, and keep every commit from now on in it."""
    # A charge is on disk before anything is computed, and stays committed.
    db.execute("PRAGMA synchronous = EXTRA")
    db.execute("PRAGMA journal_mode = DELETE")
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
    """Return every dataset's chain, not verified. Raises ValueError for an empty file."""
    if _is_empty(db):
        raise ValueError("has no charges in it")
    names = [name for (name,) in db.execute("SELECT dataset FROM chain ORDER BY dataset")]
    return [read_chain(db, name) for name in names]


def create(db: sqlite3.Connection) -> None:
    """Make the tables of an empty file, within a transaction."""
    if not _is_empty(db):
        return
    _make(db, _TABLES)
    db.execute(f"PRAGMA user_version = {_FORMAT}")


def create_shared(db: sqlite3.Connection) -> None:
    """Make the tables of a ledger that several processes charge, within a transaction."""
    _make(db, _SHARED_TABLES)


def _make(db: sqlite3.Connection, tables: str) -> None:
    for statement in tables.split(";"):  # not executescript, which would commit
        db.execute(statement)


def _is_empty(db: sqlite3.Connection) -> bool:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return bool(version != _FORMAT)  # `check_format` has seen that it is no other format


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
    """Return the chain of `dataset`. Raises ValueError for rows that no charge can make."""
    stored = db.execute(
        "SELECT lineage, count, head FROM chain WHERE dataset = ?", (dataset,)
    ).fetchone()
    if stored is None:
        raise ValueError(f"has no charges of {dataset}, but this data has been trained on")
    lineage, count, head = stored
    return Chain(dataset, lineage, count, head, read_rows(db, dataset))


def read_end(db: sqlite3.Connection, dataset: str) -> tuple[int, bytes]:
    """Return where the chain of `dataset` ends: its count and head. Raises ValueError."""
    stored = db.execute("SELECT count, head FROM chain WHERE dataset = ?", (dataset,)).fetchone()
    if stored is None:
        raise ValueError(f"has no charges of {dataset} any more")
    count, head = stored
    return count, head


def read_rows(db: sqlite3.Connection, dataset: str, first: int = 1) -> tuple[LedgerRow, ...]:
    """Return the rows of `dataset` from number `first` on.

    Raises ValueError for rows that no charge can make.
    """
    rows = db.execute(_SELECT_ROWS, (dataset, first)).fetchall()
    if any(row[0] != place or row[5] not in (0, 1) for place, row in enumerate(rows, first)):
        raise ValueError(f"{dataset}: a row is missing, or is one that no charge can have written")
    return tuple(
        LedgerRow(s, q, z, m, bool(secret), n, head) for _, s, q, z, m, secret, n, head in rows
    )


def sessions_of(db: sqlite3.Connection, dataset: str, run: str) -> frozenset[bytes]:
    """Return the openings of the file that were for `run`."""
    query = "SELECT session FROM run_session WHERE dataset = ? AND run = ?"
    return frozenset(session for (session,) in db.execute(query, (dataset, run)))


def write_session(db: sqlite3.Connection, dataset: str, run: str, session: bytes) -> None:
    """Note that the opening `session` is for `run`."""
    db.execute("INSERT INTO run_session VALUES (?, ?, ?)", (dataset, run, session))


def fixed_order(db: sqlite3.Connection, dataset: str, order: int) -> int:
    """Return the order at which this data's lifetime is bounded; it is `order` if none was yet."""
    db.execute("INSERT OR IGNORE INTO lifetime VALUES (?, ?)", (dataset, order))
    query = "SELECT renyi_order FROM lifetime WHERE dataset = ?"
    (fixed,) = db.execute(query, (dataset,)).fetchone()
    return int(fixed)


def fixed_split(
    db: sqlite3.Connection, dataset: str, key: bytes, held_out: float
) -> tuple[bytes, float]:
    """Return the key and the share of this data's split; they are these if there was none yet."""
    _make(db, _SPLIT_TABLES)
    row = (dataset, key, held_out.hex())
    db.execute("INSERT OR IGNORE INTO split VALUES (?, ?, ?)", row)
    query = "SELECT key, held_out FROM split WHERE dataset = ?"
    fixed, share = db.execute(query, (dataset,)).fetchone()
    if not isinstance(fixed, bytes) or len(fixed) != len(key):
        raise ValueError("its split has a key that no ledger can have")
    return fixed, float.fromhex(share)


def fixed_view(db: sqlite3.Connection, dataset: str, view: str) -> str:
    """Return what the rows of this data's split are known by; it is `view` if none was fixed yet.

    To be called after `fixed_split`, in its transaction.
    """
    db.execute("INSERT OR IGNORE INTO split_view VALUES (?, ?)", (dataset, view))
    query = "SELECT view FROM split_view WHERE dataset = ?"
    (fixed,) = db.execute(query, (dataset,)).fetchone()
    return str(fixed)


def read_stored_splits(db: sqlite3.Connection) -> dict[str, tuple[bytes, float]]:
    """Return the key and the share of every dataset that has a split."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE name = 'split'").fetchall()
    if not tables:
        return {}
    rows = db.execute("SELECT dataset, key, held_out FROM split")
    return {name: (bytes(key), float.fromhex(share)) for name, key, share in rows}


def read_orders(db: sqlite3.Connection) -> dict[str, int]:
    """Return the order of every dataset whose lifetime has one."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE name = 'lifetime'").fetchall()
    if not tables:
        return {}
    return {name: int(order) for name, order in db.execute("SELECT * FROM lifetime")}


def read_run_sessions(db: sqlite3.Connection) -> dict[tuple[str, bytes], str]:
    """Return the run of every opening that was for one, by dataset and session."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE name = 'run_session'").fetchall()
    if not tables:
        return {}
    rows = db.execute("SELECT dataset, session, run FROM run_session")
    return {(dataset, bytes(session)): str(run) for dataset, session, run in rows}
