"""The outbox: messages that are charged and not yet receipted, on disk before they are sent.

A retry sends the same bytes, so it costs no privacy. Messages leave one at a time, in order: the
next is sent only when the last has its receipt. That, with the store's "seq must rise" rule, is
exactly once.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.privacy.ledger import UNCHARGED, Charged, Ledger
from tacit.protocol._pb import wire_pb2 as pb
from tacit_services.disk import sqlite_format

_FORMAT = 1  # 0.1 wrote none, and the same tables
_SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    run TEXT, seq INTEGER, envelope BLOB NOT NULL, PRIMARY KEY (run, seq));
CREATE TABLE IF NOT EXISTS counter (run TEXT PRIMARY KEY, seq INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS state (run TEXT PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS receipt (
    run TEXT PRIMARY KEY, seq INTEGER NOT NULL, proof BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS anchor (
    lineage BLOB PRIMARY KEY, count INTEGER NOT NULL, head BLOB NOT NULL);
"""


class Outbox:
    """One identity's unreceipted messages of one run."""

    def __init__(self, path: Path | str, run: str) -> None:
        """Open or create the file.

        Raises PrivacyError when it is damaged, a newer tacit's, or cannot be written.
        """
        self._path, self._run = path, run
        self._finished: list[int] = []
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=10.0)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            sqlite_format.prepare(self._db, _SCHEMA, _FORMAT)
            rows = self._db.execute(
                "SELECT seq, envelope FROM message WHERE run = ? ORDER BY seq", (run,)
            )
            self._pending: dict[int, bytes] = dict(rows.fetchall())
            last = self._db.execute("SELECT seq FROM counter WHERE run = ?", (run,)).fetchone()
            held = self._db.execute(
                "SELECT seq, proof FROM receipt WHERE run = ?", (run,)
            ).fetchone()
        except (sqlite3.Error, ValueError) as error:
            raise PrivacyError(f"outbox {path}: {error}") from error
        self._last = int(last[0]) if last else 0
        self._held = pb.Held(seq=held[0], proof=held[1]) if held else None

    @property
    def receipt(self) -> pb.Held | None:
        """The newest receipt, by which the aggregator sees that its store has lost messages."""
        return self._held

    def hold(self, receipt: pb.Held) -> None:
        """Keep a receipt; it is on disk with the next message, or comes again with a duplicate."""
        if self._held is None or receipt.seq >= self._held.seq:
            self._held = receipt

    def next_seq(self) -> int:
        """The number that the next message must carry."""
        return self._last + 1

    def check(self, ledger: Ledger) -> None:
        """Raise PrivacyError when `ledger` stands before what messages here were paid with.

        Then it is an older copy.
        """
        row = self._db.execute(
            "SELECT count, head FROM anchor WHERE lineage = ?", (ledger.lineage,)
        ).fetchone()
        kept, has = Charged(*row) if row else UNCHARGED, ledger.charged()
        if has.count < kept.count or (has.count == kept.count and has != kept):
            raise PrivacyError(
                f"ledger of {self._path}: it has {has.count} releases, messages were paid with "
                f"{kept.count}; an older "
                "copy was put back, refusing to train"
            )

    def put(
        self, seq: int, envelope: bytes, ledger: Ledger | None = None, state: bytes | None = None
    ) -> None:
        """Make the message durable.

        ledger: where it stands is kept with the message. state: the sender's own, if it has one, is
        kept as well. Raises PrivacyError when that fails; then the message must not be sent.
        """
        assert seq == self._last + 1
        try:
            self._db.execute("BEGIN IMMEDIATE")
            # Deleting the receipted ones here, not in done(), saves a fsync; a crash between costs
            # one duplicate.
            self._db.executemany(
                "DELETE FROM message WHERE run = ? AND seq = ?",
                [(self._run, n) for n in self._finished],
            )
            self._db.execute("INSERT INTO message VALUES (?, ?, ?)", (self._run, seq, envelope))
            self._db.execute(
                "INSERT INTO counter VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET seq = "
                "excluded.seq",
                (self._run, seq),
            )
            if self._held is not None:
                self._db.execute(
                    "INSERT OR REPLACE INTO receipt VALUES (?, ?, ?)",
                    (self._run, self._held.seq, self._held.proof),
                )
            if ledger is not None:
                charged = ledger.charged()
                self._db.execute(
                    "INSERT OR REPLACE INTO anchor VALUES (?, ?, ?)",
                    (ledger.lineage, charged.count, charged.head),
                )
            if state is not None:
                self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (self._run, state))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise PrivacyError(f"outbox {self._path}: {error}; the update was not sent") from error
        self._finished.clear()
        self._last = seq
        self._pending[seq] = envelope

    def state(self) -> bytes | None:
        """The sender's state as of the last message that came with one. Raises PrivacyError."""
        try:
            row = self._db.execute(
                "SELECT content FROM state WHERE run = ?", (self._run,)
            ).fetchone()
        except sqlite3.Error as error:
            raise PrivacyError(f"outbox {self._path}: {error}") from error
        return bytes(row[0]) if row else None

    def oldest(self) -> tuple[int, bytes] | None:
        """The message to send (again), if any."""
        for seq, envelope in self._pending.items():
            return seq, envelope
        return None

    def done(self, seq: int) -> bool:
        """Remove a message that has a final receipt; False if it was removed before."""
        if self._pending.pop(seq, None) is None:
            return False
        self._finished.append(seq)
        return True

    def close(self) -> None:
        """Close the file; idempotent."""
        self._db.close()
