"""`outbox.db`: where an older tacit kept an identity's messages, apart from the ledger.

A run's messages are taken over into the ledger's file when the run first goes on; the file is
deleted with its last run. What it knows of ledgers is checked as long as it is there.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.privacy.ledger import UNCHARGED, Charged, Ledger
from tacit_services.disk import files, sqlite_format

_FORMAT = 1  # 0.1 wrote none, and fewer tables
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
_SENDER = """
SELECT counter.seq, receipt.seq, receipt.proof, state.content FROM counter
LEFT JOIN receipt USING (run) LEFT JOIN state USING (run) WHERE counter.run = ?
"""
_FORGET = (
    "DELETE FROM message WHERE run = ?",
    "DELETE FROM receipt WHERE run = ?",
    "DELETE FROM state WHERE run = ?",
    "DELETE FROM counter WHERE run = ?",  # last: while it is there, all is done again
)


@dataclass(frozen=True, slots=True)
class OldOutbox:
    """The old outbox in an identity's `folder`, which most identities have not got."""

    folder: Path

    @property
    def path(self) -> Path:
        """Its file."""
        return self.folder / "outbox.db"

    def used(self) -> bool:
        """Whether this identity has sent messages with an older tacit."""
        if not self.path.is_file():
            return False
        try:
            with self._opened() as db:
                return db.execute("SELECT 1 FROM counter LIMIT 1").fetchone() is not None
        except PrivacyError:
            return True  # a damaged outbox was in use; the error comes when it is taken over

    def payers(self) -> dict[bytes, Charged]:
        """The lineages of the ledgers that have paid for messages, and how far they then were.

        Raises PrivacyError.
        """
        if not self.path.is_file():
            return {}
        with self._opened() as db:
            rows = db.execute("SELECT lineage, count, head FROM anchor").fetchall()
        return {bytes(lineage): Charged(count, bytes(head)) for lineage, count, head in rows}

    def check(self, ledger: Ledger, known: set[bytes]) -> None:
        """Raise PrivacyError where a ledger that is neither this one nor `known` has paid.

        Or where this one was further when it paid: then an older copy was put back.
        """
        found = self.payers()
        if set(found) - known - {ledger.lineage}:
            raise PrivacyError(
                f"ledger of identity {self.folder}: messages in {self.path.name} were paid with a "
                "ledger that is not here any more; it was exchanged, refusing to train"
            )
        ledger.require(found.get(ledger.lineage, UNCHARGED))

    def take_over(self, run: str, owner: bytes, ledger: Ledger) -> None:
        """Bring what it has of `run` into the file of `ledger`, and delete it here.

        Killed in between, it is done again, to the same end. Raises PrivacyError.
        """
        try:
            if self.path.is_file() and self._moved(run, owner, ledger):
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self.path}{suffix}").unlink(missing_ok=True)
                files.sync(self.folder)
        except OSError as error:
            raise PrivacyError(f"outbox of run {run}: {error}") from error

    def _moved(self, run: str, owner: bytes, ledger: Ledger) -> bool:
        """Move what there is of `run`; whether nothing of any run is left."""
        with self._opened() as db:
            sender = db.execute(_SENDER, (run,)).fetchone()
            rows = db.execute("SELECT seq, envelope FROM message WHERE run = ?", (run,)).fetchall()
            if sender is not None:
                _store(ledger, (owner, run), sender, rows)
            for statement in _FORGET:
                db.execute(statement, (run,))
            return db.execute("SELECT 1 FROM counter LIMIT 1").fetchone() is None

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None, timeout=10.0)) as db:
                sqlite_format.prepare(db, _SCHEMA, _FORMAT)
                yield db
        except (sqlite3.Error, ValueError) as error:
            raise PrivacyError(f"outbox {self.path}: {error}") from error


def _store(
    ledger: Ledger,
    key: tuple[bytes, str],
    sender: tuple[int, int | None, bytes | None, bytes | None],
    rows: list[tuple[int, bytes]],
) -> None:
    if ledger.read("SELECT 1 FROM sender WHERE owner = ? AND run = ?", *key):
        return  # taken over before
    with ledger.transaction() as db:
        db.execute("INSERT INTO sender VALUES (?, ?, ?, ?, ?, ?)", (*key, *sender))
        for seq, envelope in rows:
            row = (*key, seq, hashlib.sha256(envelope).digest(), envelope)
            db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
