"""The store contract in one SQLite file, which may hold several runs.

The file is in WAL mode with synchronous=FULL: a commit has reached the disk when it returns, so an
accepted message survives a power cut. One `append` is one transaction, hence one fsync, however
many messages it carries.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tacit import errors
from tacit_services.disk import sqlite_format
from tacit_services.journal.store import append_rules
from tacit_services.journal.store.append_rules import Totals
from tacit_services.journal.store.base import (
    Anchor,
    Appended,
    NewEntry,
    Saver,
    Snapshot,
    StoredEntry,
    Verdict,
)

_FORMAT = 3  # PRAGMA user_version of a file with the tables below; 2 had no count of duplicates
_TABLES = (
    """CREATE TABLE IF NOT EXISTS run (
    run TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, epoch INTEGER NOT NULL,
    position INTEGER NOT NULL DEFAULT 0, entries INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0, duplicates INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS edge (
    run TEXT NOT NULL, edge TEXT NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (run, edge)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS journal (
    run TEXT NOT NULL, position INTEGER NOT NULL, edge TEXT NOT NULL, seq INTEGER NOT NULL,
    payload BLOB NOT NULL, PRIMARY KEY (run, position))""",
    """CREATE TABLE IF NOT EXISTS snapshot (
    run TEXT PRIMARY KEY, cursor INTEGER NOT NULL, state BLOB NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS anchor (
    lineage TEXT PRIMARY KEY, count INTEGER NOT NULL, head BLOB NOT NULL) WITHOUT ROWID""",
    f"PRAGMA user_version = {_FORMAT}",
)
_KEEP_ANCHOR = """
INSERT INTO anchor VALUES (?, ?, ?)
ON CONFLICT (lineage) DO UPDATE SET count = excluded.count, head = excluded.head
WHERE excluded.count > anchor.count
"""


class SqliteStore:
    """One run in the SQLite file at `path`.

    It connects at the first use, and again after an error or `close`. A write waits up to `busy_s`
    seconds for another process to finish its own, then raises ServiceError. It may be used from any
    thread, by one at a time.
    """

    def __init__(
        self, path: Path, run: str, limits: append_rules.JournalLimits, busy_s: float = 5.0
    ) -> None:
        # Absolute, so that a later change of directory cannot lead a reconnection to another file.
        self._path = path.absolute()
        self._run = run
        self._limits = limits
        self._busy_s = busy_s
        self._epoch = 0
        self._open_db: sqlite3.Connection | None = None

    def open(self, fingerprint: str) -> int:
        """See base.Store.open."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT fingerprint, epoch, entries FROM run WHERE run = ?", (self._run,)
            ).fetchone()
            stored, epoch, due = row or (fingerprint, 0, 0)
            if stored != fingerprint:
                raise append_rules.other_parameters(self._run, stored, fingerprint)
            (present,) = db.execute(
                "SELECT COUNT(*) FROM journal WHERE run = ?", (self._run,)
            ).fetchone()
            if present != due:
                raise append_rules.incomplete(f"sqlite file {self._path}", self._run, present, due)
            db.execute(
                "INSERT INTO run (run, fingerprint, epoch) VALUES (?, ?, 1) "
                "ON CONFLICT (run) DO UPDATE SET epoch = epoch + 1",
                (self._run, fingerprint),
            )
        self._epoch = int(epoch) + 1
        return self._epoch

    def append(self, entries: Sequence[NewEntry]) -> list[Appended]:
        """See base.Store.append."""
        for entry in entries:
            append_rules.check_numbers(entry.edge, entry.seq, entry.anchor)
        if not entries:
            return []
        answers = []
        with self._transaction() as db:
            totals = self._fenced_totals(db)
            for entry in entries:
                answer = self._append_one(db, entry, totals)
                answers.append(answer)
                totals = totals.after(answer, len(entry.payload))
            self._set_totals(db, totals)
        return answers

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        """See base.Store.begin. The append is done at once."""
        answers = self.append(entries)
        return lambda: answers

    def stage(self) -> None:
        """See base.Store.stage: payloads are taken in whole."""

    def read(self, after: int, limit: int) -> list[StoredEntry]:
        """See base.Store.read."""
        with self._connection() as db:
            rows = db.execute(
                "SELECT position, edge, seq, payload FROM journal WHERE run = ? AND position > ? "
                "ORDER BY position LIMIT ?",
                (self._run, after, max(limit, 0)),  # SQLite takes a negative limit as none
            )
            return [StoredEntry(*row) for row in rows]

    def replay(self, after: int, page: int) -> Iterator[StoredEntry]:
        """See base.Store.replay."""
        return append_rules.in_pages(self.read, after, page)

    def save(self, snapshot: Snapshot) -> None:
        """See base.Store.save."""
        upto = (self._run, snapshot.cursor)
        with self._transaction() as db:
            totals = self._fenced_totals(db)
            row = db.execute("SELECT cursor FROM snapshot WHERE run = ?", (self._run,)).fetchone()
            append_rules.check_cursor(snapshot.cursor, row[0] if row else 0, totals.position)
            row = (*upto, bytes(snapshot.state))
            db.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?)", row)
            count, size = db.execute(
                "SELECT COUNT(*), COALESCE(SUM(LENGTH(payload)), 0) FROM journal WHERE run = ? "
                "AND position <= ?",
                upto,
            ).fetchone()
            db.execute("DELETE FROM journal WHERE run = ? AND position <= ?", upto)
            remaining = totals._replace(entries=totals.entries - count, bytes=totals.bytes - size)
            self._set_totals(db, remaining)

    def saver(self) -> Saver:
        """See base.Store.saver."""
        store = SqliteStore(self._path, self._run, self._limits, self._busy_s)
        store._epoch = self._epoch
        return store

    def snapshot(self) -> Snapshot | None:
        """See base.Store.snapshot."""
        with self._connection() as db:
            row = db.execute(
                "SELECT cursor, state FROM snapshot WHERE run = ?", (self._run,)
            ).fetchone()
        if row:
            return Snapshot(*row)
        return None

    def depth(self) -> tuple[int, int]:
        """See base.Store.depth."""
        with self._connection() as db:
            row = db.execute(
                "SELECT entries, bytes FROM run WHERE run = ?", (self._run,)
            ).fetchone()
        if row:
            return (row[0], row[1])
        return (0, 0)

    def duplicates(self) -> int:
        """See base.Store.duplicates."""
        with self._connection() as db:
            row = db.execute("SELECT duplicates FROM run WHERE run = ?", (self._run,)).fetchone()
        if row:
            return int(row[0])
        return 0

    def last_seqs(self) -> dict[str, int]:
        """See base.Store.last_seqs."""
        with self._connection() as db:
            return dict(
                db.execute("SELECT edge, seq FROM edge WHERE run = ?", (self._run,)).fetchall()
            )

    def empty(self, fingerprint: str) -> None:
        """See base.Store.empty."""
        with self._transaction() as db:
            row = db.execute("SELECT fingerprint FROM run WHERE run = ?", (self._run,)).fetchone()
            if row is not None and row[0] != fingerprint:
                raise append_rules.other_parameters(self._run, row[0], fingerprint)
            for table in ("journal", "snapshot", "edge"):
                db.execute(f"DELETE FROM {table} WHERE run = ?", (self._run,))  # noqa: S608 (ours)
            nothing = "epoch = epoch + 1, position = 0, entries = 0, bytes = 0"
            db.execute(f"UPDATE run SET {nothing} WHERE run = ?", (self._run,))  # noqa: S608

    def anchors(self) -> dict[str, Anchor]:
        """See base.Store.anchors."""
        with self._connection() as db:
            return {
                row[0]: Anchor(*row)
                for row in db.execute("SELECT lineage, count, head FROM anchor").fetchall()
            }

    def close(self) -> None:
        """See base.Store.close."""
        if self._open_db is not None:
            self._open_db.close()
            self._open_db = None

    def _append_one(self, db: sqlite3.Connection, entry: NewEntry, totals: Totals) -> Appended:
        key = (self._run, entry.edge)
        row = db.execute("SELECT seq FROM edge WHERE run = ? AND edge = ?", key).fetchone()
        last = int(row[0]) if row else 0
        verdict = append_rules.judge(last, entry.seq, (totals.entries, totals.bytes), self._limits)
        if verdict is not Verdict.ACCEPTED:
            return Appended(verdict, 0, last)
        position = totals.position + 1
        db.execute(
            "INSERT INTO journal VALUES (?, ?, ?, ?, ?)",
            (self._run, position, entry.edge, entry.seq, entry.payload),
        )
        db.execute("INSERT OR REPLACE INTO edge VALUES (?, ?, ?)", (*key, entry.seq))
        if (anchor := entry.anchor) is not None:
            db.execute(_KEEP_ANCHOR, (anchor.lineage, anchor.count, anchor.head))
        return Appended(verdict, position, entry.seq)

    def _fenced_totals(self, db: sqlite3.Connection) -> Totals:
        """Return the totals, read inside the write transaction.

        Raises Fenced under an old epoch.
        """
        row = db.execute(
            "SELECT epoch, position, entries, bytes, duplicates FROM run WHERE run = ?",
            (self._run,),
        ).fetchone()
        if row is None or row[0] != self._epoch:
            raise append_rules.fenced(self._run, self._epoch)
        return Totals(*row[1:])

    def _set_totals(self, db: sqlite3.Connection, totals: Totals) -> None:
        db.execute(
            "UPDATE run SET position = ?, entries = ?, bytes = ?, duplicates = ? WHERE run = ?",
            (*totals, self._run),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a write transaction: committed at the end, rolled back by any exception."""
        with self._connection() as db, db:
            # IMMEDIATE takes the write lock before the fence is read: nobody can open in between.
            db.execute("BEGIN IMMEDIATE")
            yield db

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection.

        An SQLite error closes it, so that the next use starts afresh, and is a ServiceError.
        """
        try:
            if self._open_db is None:
                self._open_db = self._connect()
            yield self._open_db
        except sqlite3.Error as error:
            self.close()
            raise errors.ServiceError(f"store: sqlite file {self._path}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        if not self._path.parent.is_dir():
            raise errors.ServiceError(
                f"store: sqlite file {self._path}: there is no such directory"
            )
        try:
            sqlite_format.check(self._path, _FORMAT)
        except ValueError as error:
            raise errors.ConfigError(f"store: sqlite file {self._path}: {error}") from error
        db = sqlite3.connect(
            self._path, timeout=self._busy_s, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(db)
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Set the durability up, and create the tables in an empty file."""
        self._into_wal(db)
        db.execute("PRAGMA synchronous = FULL")
        if sqlite_format.is_new(db, _FORMAT):
            db.execute("BEGIN IMMEDIATE")
            with db:  # another process may have made them meanwhile
                for statement in _TABLES:
                    db.execute(statement)

    def _into_wal(self, db: sqlite3.Connection) -> None:
        """Change to a write-ahead log, waiting where another process does the same at this moment.

        SQLite's own timeout does not cover this case: a connection that has begun to read is told
        at once that the file is locked.
        """
        deadline = time.monotonic() + self._busy_s
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if (
                    error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY
                    or time.monotonic() > deadline
                ):
                    raise
            time.sleep(0.01)
