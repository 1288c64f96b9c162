"""The format number of a SQLite file, kept in `PRAGMA user_version`.

The number tells a later version of tacit what it is reading.
"""

from __future__ import annotations

import sqlite3


def prepare(db: sqlite3.Connection, schema: str, number: int) -> None:
    """Create the tables of `schema` (all `IF NOT EXISTS`), and mark the file as format `number`.

    A file without a number is either new or was written by tacit 0.1, which wrote no number and
    used the tables of format 1. Raises ValueError for a file whose number is larger than `number`:
    a newer tacit wrote it, and this one does not know what it says.
    """
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > number:
        raise ValueError(
            f"has format {found}, this tacit reads {number}: a newer one has written it"
        )
    db.executescript(schema)
    if found != number:
        db.execute(f"PRAGMA user_version = {number:d}")
