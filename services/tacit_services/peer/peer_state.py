"""A peer's durable state in one run: the model, open exchanges, answers given.

It lies beside the peer's ledger.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.errors import PrivacyError
from tacit_services.disk import sqlite_format

_FORMAT = 1
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS tensor (
    run TEXT, name TEXT, dtype TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (run, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS record (run TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {_FORMAT};
"""


class PeerState:
    """The peer's newest state on disk; a `save` is one transaction, durable when it returns.

    May be used by several threads, one at a time.
    """

    def __init__(self, path: Path | str, run: str) -> None:
        """Open or create the file.

        Raises PrivacyError when it is damaged, of another format, or cannot be written.
        """
        self._path = path
        self._run = run
        self._saved: dict[str, Tensor] = {}
        try:
            sqlite_format.check(Path(path), _FORMAT)
            self._db = sqlite3.connect(
                path, isolation_level=None, timeout=10.0, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
        except (sqlite3.Error, ValueError) as error:
            raise PrivacyError(f"peer state {path}: {error}") from error

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what was saved last for this run, or None. Raises PrivacyError if unreadable."""
        try:
            row = self._db.execute(
                "SELECT content FROM record WHERE run = ?", (self._run,)
            ).fetchone()
            rows = self._db.execute(
                "SELECT name, dtype, content FROM tensor WHERE run = ?", (self._run,)
            ).fetchall()
            tensors = {
                name: torch.from_numpy(np.frombuffer(bytearray(content), dtype=dtype))
                for name, dtype, content in rows
            }
            if row is None:
                return None
            return (tensors, json.loads(row[0]))
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
            raise PrivacyError(f"peer state {self._path}: {error}") from error

    def save(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Replace what was saved.

        Roles never write into a tensor, so one that was saved need not be written again. Raises
        PrivacyError when it cannot be made durable; then nothing that follows from it may be sent.
        """
        fresh = {
            name: tensor for name, tensor in tensors.items() if self._saved.get(name) is not tensor
        }
        rows = [
            (self._run, name, t.numpy().dtype.str, t.numpy().tobytes()) for name, t in fresh.items()
        ]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            removed = [(self._run, name) for name in self._saved if name not in tensors]
            self._db.executemany("DELETE FROM tensor WHERE run = ? AND name = ?", removed)
            self._db.executemany("INSERT OR REPLACE INTO tensor VALUES (?, ?, ?, ?)", rows)
            self._db.execute(
                "INSERT OR REPLACE INTO record VALUES (?, ?)", (self._run, json.dumps(values))
            )
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise PrivacyError(f"peer state {self._path}: {error}; nothing was sent") from error
        self._saved = dict(tensors)

    def close(self) -> None:
        """Close the file; idempotent."""
        self._db.close()
