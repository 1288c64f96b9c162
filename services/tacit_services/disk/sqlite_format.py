"""The format number of a SQLite file (PRAGMA user_version): who comes later can tell what it is reading."""

from __future__ import annotations

import sqlite3


def prepare(db: sqlite3.Connection, schema: str, number: int) -> None:
    """Make the tables of `schema`, all IF NOT EXISTS, and say that the file has format `number`.

    A file without a number is new, or one of tacit 0.1, which had none and the tables of format 1. Raises ValueError
    for a file with a larger number than `number`: what it says is not known here.
    """
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > number:
        raise ValueError(
            f"has format {found}, this tacit reads {number}: a newer one has written it"
        )
    db.executescript(schema)
    if found != number:
        db.execute(f"PRAGMA user_version = {number:d}")
