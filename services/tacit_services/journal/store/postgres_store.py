"""The store contract in one PostgreSQL database, which may hold several runs.

An append is one transaction, hence one wait for the disk, however many messages it carries. It
locks the run's row before it reads the fence, so nobody can open in between. Nothing is retried
here: whether a commit that was not answered has happened shows when the caller opens the run again,
which waits until it is over. What a server may not do is in postgres_client.py.

Payloads and snapshots of more than PIECE bytes lie in pieces, as the server takes no value of
1 GiB, and copies each several times.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import psycopg

from tacit import errors
from tacit_services.journal.store import append_rules, postgres_client, postgres_tables
from tacit_services.journal.store.base import (
    Anchor,
    Appended,
    NewEntry,
    Pieces,
    Saver,
    Snapshot,
    StoredEntry,
    Verdict,
)

PIECE = 2 << 20  # bytes
_SILENT_S = 30.0  # a slow disk
_INSERT_PIECE = "INSERT INTO tacit_piece VALUES (%s, %s, %s, %b)"
_SET_TOTALS = """
UPDATE tacit_run SET position = %s, entries = %s, bytes = %s, duplicates = %s WHERE run = %s
"""
_KEEP_SEQS = """
INSERT INTO tacit_edge SELECT %s, * FROM unnest(%s::text[], %s::bigint[])
ON CONFLICT (run, edge) DO UPDATE SET seq = excluded.seq
"""
# In one order, so that two runs with the same lineages do not wait for each other.
_KEEP_ANCHORS = """
INSERT INTO tacit_anchor SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bytea[])
ON CONFLICT (lineage) DO UPDATE SET count = excluded.count, head = excluded.head
WHERE excluded.count > tacit_anchor.count
"""
_TRIM = """
WITH gone AS (DELETE FROM tacit_journal WHERE run = %s AND position <= %s RETURNING size)
SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone
"""


class PostgresStore:
    """One run in the database at `url` (postgresql://user@host:port/database, as libpq reads it).

    It connects at the first use, and again after an error or `close`. A server that is silent for
    `silent_s` seconds counts as lost. It may be used from any thread, by one at a time.
    """

    def __init__(
        self, url: str, run: str, limits: append_rules.JournalLimits, silent_s: float = _SILENT_S
    ) -> None:
        self._url = url
        self._display_url = postgres_client.display(url)
        self._run = run
        self._limits = limits
        self._silent_s = silent_s
        self._epoch = 0
        self._known = append_rules.Known()
        self._open_db: postgres_client.SilenceEnds | None = None

    def open(self, fingerprint: str) -> int:
        """See base.Store.open."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO tacit_run (run, fingerprint) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                (self._run, fingerprint),
            )
            stored, due = _row(
                db,
                "SELECT fingerprint, entries FROM tacit_run WHERE run = %s FOR UPDATE",
                self._run,
            )
            if stored != fingerprint:
                raise append_rules.other_parameters(self._run, stored, fingerprint)
            (present,) = _row(db, "SELECT count(*) FROM tacit_journal WHERE run = %s", self._run)
            if present != due:
                raise append_rules.incomplete(self._display_url, self._run, present, due)
            (epoch,) = _row(
                db,
                "UPDATE tacit_run SET epoch = epoch + 1 WHERE run = %s RETURNING epoch",
                self._run,
            )
        self._epoch = int(epoch)
        return self._epoch

    def append(self, entries: Sequence[NewEntry]) -> list[Appended]:
        """See base.Store.append."""
        for entry in entries:
            append_rules.check_numbers(entry.edge, entry.seq, entry.anchor)
        if not entries:
            return []
        with self._transaction() as db:
            before = totals = self._fenced_totals(db)
            if totals.position < self._known.position:
                raise append_rules.lost(self._display_url, self._run)
            last = self._last_of(db, sorted({entry.edge for entry in entries}))
            answers = []
            for entry in entries:
                answer = self._judged(entry, last.get(entry.edge, 0), totals)
                answers.append(answer)
                totals = totals.after(answer, len(entry.payload))
                last[entry.edge] = answer.last_seq
            accepted = [
                (answer.position, entry)
                for entry, answer in zip(entries, answers, strict=True)
                if answer.verdict is Verdict.ACCEPTED
            ]
            if totals != before:
                self._write(db, accepted, totals)
        self._known.heard(answers)
        return answers

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        """See base.Store.begin. The append is done at once."""
        answers = self.append(entries)
        return lambda: answers

    def stage(self) -> None:
        """See base.Store.stage: payloads are taken in whole."""

    def read(self, after: int, limit: int) -> list[StoredEntry]:
        """See base.Store.read."""
        with self._one_moment() as db:
            rows = db.execute(
                "SELECT position, edge, seq, size, payload FROM tacit_journal WHERE run = %s "
                "AND position > %s ORDER BY position LIMIT %s",
                (self._run, after, max(limit, 0)),
                binary=True,
            ).fetchall()
            return [
                StoredEntry(position, edge, seq, self._payload(db, position, size, begun))
                for position, edge, seq, size, begun in rows
            ]

    def replay(self, after: int, page: int) -> Iterator[StoredEntry]:
        """See base.Store.replay."""
        return append_rules.in_pages(self.read, after, page)

    def save(self, snapshot: Snapshot) -> None:
        """See base.Store.save.

        The state comes before the run is locked, so that appends go on meanwhile.
        """
        owner = -1 - secrets.randbits(62)  # nobody else's, and no position
        confirmed = self._known.position
        with self._transaction() as db:
            for number, piece in enumerate(_cut(snapshot.state)):
                db.execute(_INSERT_PIECE, (self._run, owner, number, piece))
            totals = self._fenced_totals(db)
            if totals.position < confirmed:
                raise append_rules.lost(self._display_url, self._run)
            stored, old = _row(
                db, "SELECT cursor, snapshot FROM tacit_run WHERE run = %s", self._run
            )
            append_rules.check_cursor(snapshot.cursor, stored or 0, totals.position)
            count, size = _row(db, _TRIM, self._run, snapshot.cursor)
            db.execute(
                "DELETE FROM tacit_piece WHERE run = %s AND (owner = %s OR owner BETWEEN 1 AND %s)",
                (self._run, old, snapshot.cursor),
            )
            db.execute(
                "UPDATE tacit_run SET cursor = %s, snapshot = %s WHERE run = %s",
                (snapshot.cursor, owner, self._run),
            )
            remaining = totals._replace(entries=totals.entries - count, bytes=totals.bytes - size)
            db.execute(_SET_TOTALS, (*remaining, self._run))

    def saver(self) -> Saver:
        """See base.Store.saver."""
        store = PostgresStore(self._url, self._run, self._limits, self._silent_s)
        store._epoch = self._epoch
        store._known = self._known
        return store

    def snapshot(self) -> Snapshot | None:
        """See base.Store.snapshot."""
        with self._one_moment() as db:
            row = self._of_run(db, "cursor, snapshot")
            if row is None or row[0] is None:
                return None
            return Snapshot(row[0], b"".join(self._pieces(db, row[1])))

    def depth(self) -> tuple[int, int]:
        """See base.Store.depth."""
        with self._connection() as db:
            entries, size = self._of_run(db, "entries, bytes") or (0, 0)
        return entries, size

    def duplicates(self) -> int:
        """See base.Store.duplicates."""
        with self._connection() as db:
            (count,) = self._of_run(db, "duplicates") or (0,)
        return int(count)

    def last_seqs(self) -> dict[str, int]:
        """See base.Store.last_seqs."""
        with self._connection() as db:
            return dict(
                db.execute(
                    "SELECT edge, seq FROM tacit_edge WHERE run = %s", (self._run,)
                ).fetchall()
            )

    def empty(self, fingerprint: str) -> None:
        """See base.Store.empty."""
        with self._transaction() as db:
            row = self._of_run(db, "fingerprint", "FOR UPDATE")
            if row is not None and row[0] != fingerprint:
                raise append_rules.other_parameters(self._run, row[0], fingerprint)
            db.execute("DELETE FROM tacit_journal WHERE run = %s", (self._run,))
            db.execute("DELETE FROM tacit_piece WHERE run = %s", (self._run,))
            db.execute("DELETE FROM tacit_edge WHERE run = %s", (self._run,))
            db.execute(
                "UPDATE tacit_run SET epoch = epoch + 1, position = 0, entries = 0, bytes = 0, "
                "cursor = NULL, snapshot = NULL WHERE run = %s",
                (self._run,),
            )
        self._known.position = 0

    def anchors(self) -> dict[str, Anchor]:
        """See base.Store.anchors."""
        with self._connection() as db:
            rows = db.execute("SELECT lineage, count, head FROM tacit_anchor").fetchall()
        return {row[0]: Anchor(*row) for row in rows}

    def close(self) -> None:
        """See base.Store.close."""
        if self._open_db is not None:
            self._open_db.close()
            self._open_db = None

    def _judged(self, entry: NewEntry, last: int, totals: append_rules.Totals) -> Appended:
        verdict = append_rules.judge(last, entry.seq, (totals.entries, totals.bytes), self._limits)
        if verdict is Verdict.ACCEPTED:
            return Appended(verdict, totals.position + 1, entry.seq)
        return Appended(verdict, 0, last)

    def _write(
        self,
        db: psycopg.Connection[Any],
        accepted: Sequence[tuple[int, NewEntry]],
        totals: append_rules.Totals,
    ) -> None:
        """Write accepted entries, by their positions, and the totals behind them."""
        rows = []
        seqs = {}
        anchors = dict[str, Anchor]()
        for position, entry in accepted:
            # Of a long payload all but the first piece, each in a step: not all is copied at once.
            pieces = islice(enumerate(_cut(entry.payload)), 1, None)
            for number, piece in pieces:
                db.execute(_INSERT_PIECE, (self._run, position, number, piece))
            size = len(entry.payload)
            begun = memoryview(entry.payload)[:PIECE]
            rows.append((self._run, position, entry.edge, entry.seq, size, begun))
            seqs[entry.edge] = entry.seq
            if (anchor := entry.anchor) is not None:
                furthest = anchors.setdefault(anchor.lineage, anchor)
                anchors[anchor.lineage] = max(furthest, anchor, key=lambda each: each.count)
        with db.pipeline():
            if rows:
                db.cursor().executemany(
                    "INSERT INTO tacit_journal VALUES (%s, %s, %s, %s, %s, %b)", rows
                )
                db.execute(_KEEP_SEQS, (self._run, list(seqs), list(seqs.values())))
            if anchors:
                ordered = [anchors[lineage] for lineage in sorted(anchors)]
                columns = (
                    [anchor.lineage for anchor in ordered],
                    [anchor.count for anchor in ordered],
                    [anchor.head for anchor in ordered],
                )
                db.execute(_KEEP_ANCHORS, columns)
            db.execute(_SET_TOTALS, (*totals, self._run))

    def _fenced_totals(self, db: psycopg.Connection[Any]) -> append_rules.Totals:
        """Return the totals, once the run is locked.

        Raises Fenced under an old epoch.
        """
        row = self._of_run(db, "epoch, position, entries, bytes, duplicates", "FOR UPDATE")
        if row is None or row[0] != self._epoch:
            raise append_rules.fenced(self._run, self._epoch)
        return append_rules.Totals(*row[1:])

    def _of_run(self, db: psycopg.Connection[Any], columns: str, lock: str = "") -> Any:
        """Return these columns of the run's row, or None: columns and lock are of this file."""
        query = f"SELECT {columns} FROM tacit_run WHERE run = %s {lock}"  # noqa: S608 (ours)
        return db.execute(query.encode(), (self._run,)).fetchone()

    def _last_of(self, db: psycopg.Connection[Any], edges: list[str]) -> dict[str, int]:
        query = "SELECT edge, seq FROM tacit_edge WHERE run = %s AND edge = ANY(%s)"
        return dict(db.execute(query, (self._run, edges)).fetchall())

    def _payload(
        self, db: psycopg.Connection[Any], position: int, size: int, begun: bytes
    ) -> bytes:
        if len(begun) == size:
            return begun
        whole = b"".join((begun, *self._pieces(db, position)))
        if len(whole) != size:
            raise append_rules.altered(self._display_url, self._run, f"entry {position}")
        return whole

    def _pieces(self, db: psycopg.Connection[Any], owner: int) -> Iterator[bytes]:
        rows = db.execute(
            "SELECT piece FROM tacit_piece WHERE run = %s AND owner = %s ORDER BY number",
            (self._run, owner),
            binary=True,
        )
        return (piece for (piece,) in rows)

    @contextmanager
    def _one_moment(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a transaction that reads the run as it is at one moment."""
        with self._connection() as db, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield db

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a write transaction: committed at the end, rolled back by any exception."""
        with self._connection() as db, db.transaction():
            yield db

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield the connection.

        An error of the server closes it, so that the next use starts afresh, and is a ServiceError.
        """
        try:
            if self._open_db is None:
                self._open_db = self._connect()
            yield self._open_db
        except psycopg.Error as error:
            self.close()
            raise errors.ServiceError(
                f"store: {self._display_url}: {postgres_client.reason(error)}"
            ) from error

    def _connect(self) -> postgres_client.SilenceEnds:
        db = postgres_client.connect(self._url, self._display_url, self._silent_s)
        try:
            postgres_tables.prepare(db, self._display_url)
        except (psycopg.Error, errors.ConfigError):
            db.close()
            raise
        return db


def _row(db: psycopg.Connection[Any], query: Any, *values: Any) -> Any:
    """Return the one row that `query` has."""
    return db.execute(query, values).fetchone()


def _cut(content: bytes | memoryview | Pieces) -> Iterable[memoryview]:
    """Yield `content` in pieces of at most PIECE bytes."""
    for part in content if isinstance(content, Pieces) else (content,):
        view = memoryview(part).cast("B")
        for first in range(0, len(view), PIECE):
            yield view[first : first + PIECE]
