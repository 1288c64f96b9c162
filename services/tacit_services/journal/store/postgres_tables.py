"""The tables of a store in PostgreSQL, made where they are missing, in the user's first schema."""

from __future__ import annotations

from typing import Any

import psycopg

from tacit import errors

_FORMAT = 1
_LOCK = 0x7461636974  # an advisory lock: two processes that make the tables at once
_TABLES = (
    """CREATE TABLE tacit_run (
    run text PRIMARY KEY, fingerprint text NOT NULL, epoch bigint NOT NULL DEFAULT 0,
    position bigint NOT NULL DEFAULT 0, entries bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0, duplicates bigint NOT NULL DEFAULT 0,
    cursor bigint, snapshot bigint)""",  # snapshot: `owner` of its pieces; both null before it
    """CREATE TABLE tacit_edge (
    run text NOT NULL, edge text NOT NULL, seq bigint NOT NULL, PRIMARY KEY (run, edge))""",
    """CREATE TABLE tacit_journal (
    run text NOT NULL, position bigint NOT NULL, edge text NOT NULL, seq bigint NOT NULL,
    size bigint NOT NULL, payload bytea NOT NULL, PRIMARY KEY (run, position))""",
    # owner: of the rest of a payload, its entry's position; of a snapshot, a number below 0.
    """CREATE TABLE tacit_piece (
    run text NOT NULL, owner bigint NOT NULL, number integer NOT NULL, piece bytea NOT NULL,
    PRIMARY KEY (run, owner, number))""",
    """CREATE TABLE tacit_anchor (
    lineage text PRIMARY KEY, count bigint NOT NULL, head bytea NOT NULL)""",
    # Noise does not get smaller, so the server need not try.
    "ALTER TABLE tacit_journal ALTER COLUMN payload SET STORAGE EXTERNAL",
    "ALTER TABLE tacit_piece ALTER COLUMN piece SET STORAGE EXTERNAL",
    "CREATE TABLE tacit_format (number integer NOT NULL)",
    f"INSERT INTO tacit_format VALUES ({_FORMAT})",  # noqa: S608  (a number of ours)
)


def prepare(db: psycopg.Connection[Any], place: str) -> None:
    """Create the tables where there are none.

    Raises psycopg.Error, and ConfigError where they are of another format.
    """
    if not _there(db):
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            if not _there(db):  # another process may have made them meanwhile
                for statement in _TABLES:
                    db.execute(statement)
    (number,) = db.execute("SELECT max(number) FROM tacit_format").fetchone() or (None,)
    if number != _FORMAT:
        raise errors.ConfigError(f"store: {place}: {errors.other_format(number, _FORMAT)}")


def _there(db: psycopg.Connection[Any]) -> bool:
    return db.execute("SELECT to_regclass('tacit_format')").fetchone() != (None,)
