"""The format number of a SQLite file, kept in `PRAGMA user_version`.

The number tells a later version of tacit what it is reading.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tacit.errors import other_format

# One statement, so that another process creating the tables is seen either before or after.
_QUERY = "SELECT user_version, (SELECT COUNT(*) FROM sqlite_master) FROM pragma_user_version"


def is_new(db: sqlite3.Connection, number: int) -> bool:
    """Return whether the file is empty; if not, it has format `number`.

    Raises ValueError for a file of another format.
    """
    stored, tables = db.execute(_QUERY).fetchone()
    if stored != number and (stored or tables):
        raise ValueError(other_format(stored or None, number))
    return bool(stored != number)


def check(path: Path, number: int) -> None:
    """Raise ValueError where the file at `path` has another format than `number`.

    Nothing is changed: who closes a file for writing would bring its log into it.
    """
    if path.is_file():
        if Path(f"{path}-wal").exists():
            mode = "ro"
        else:
            mode = "rw"
        name = f"{path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(name, uri=True, timeout=10.0)) as db:
            is_new(db, number)
