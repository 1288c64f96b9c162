"""The edge's durable record of what it has released: charged first, never refunded.

One SQLite file per identity; rows are (dataset, q, z, mechanism) with a count, so its size does not grow with the
number of pushes. It belongs to the data, not to a run: a new run, a restarted process or a new container that
takes the identity over continues the same rows.
"""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.privacy.accounting import History, Spend, merged

_SCHEMA = """
CREATE TABLE IF NOT EXISTS spend (
    dataset TEXT NOT NULL, sampling_rate TEXT NOT NULL, noise_multiplier TEXT NOT NULL, mechanism TEXT NOT NULL,
    secret INTEGER NOT NULL, count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (dataset, sampling_rate, noise_multiplier, mechanism, secret)
) WITHOUT ROWID
"""
_CHARGE = """
INSERT INTO spend VALUES (?, ?, ?, ?, ?, 1)
ON CONFLICT (dataset, sampling_rate, noise_multiplier, mechanism, secret) DO UPDATE SET count = count + 1
"""


@dataclass(frozen=True, slots=True)
class Charged:
    """How far a ledger has come: releases charged in the dataset's life, and the end of its hash chain."""

    count: int = 0
    head: bytes = b""


UNCHARGED = Charged()  # a new ledger's


class Ledger:
    """The spend of one dataset at one edge. Floats are stored as hex, so that they come back to the last bit."""

    def __init__(self, path: Path | str, dataset: str) -> None:
        """Open or create the ledger at `path` (":memory:" for tests) for the data lineage `dataset`.

        Raises PrivacyError when the file cannot be opened or is damaged: without its history an edge must not
        train.
        """
        self._dataset = dataset
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=10.0)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # a charge is on disk before anything is computed
            self._db.execute(_SCHEMA)
            self._check()
            self._history = self._read()
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise PrivacyError(f"ledger {path}: {error}; refusing to train without its history") from error

    def charge(self, sampling_rate: float, noise_multiplier: float, mechanism: str, *, secret: bool) -> None:
        """Record one release, durably, before it is computed. A crash afterwards refunds nothing.

        Raises PrivacyError when the charge cannot be made durable (disk full, damaged file).
        """
        row = (self._dataset, sampling_rate.hex(), noise_multiplier.hex(), mechanism, int(secret))
        try:
            self._db.execute(_CHARGE, row)
        except sqlite3.Error as error:
            raise PrivacyError(f"ledger {self._path}: {error}; the release was not computed") from error
        counted = noise_multiplier if secret else 0.0
        self._history = merged([*self._history, Spend(sampling_rate, counted, 1, _accounted(mechanism))])

    def history(self) -> History:
        """Everything ever released from this dataset. Noise from a known seed counts as no noise (z = 0)."""
        return self._history

    def charged(self) -> Charged:
        """How far this ledger has come."""
        return Charged(sum(row.count for row in self._history))

    def close(self) -> None:
        """Close the file; idempotent."""
        self._db.close()

    def _check(self) -> None:
        (verdict,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(" ".join(str(verdict).split()))

    def _read(self) -> History:
        rows = self._db.execute(
            "SELECT sampling_rate, noise_multiplier, mechanism, secret, count FROM spend WHERE dataset = ?",
            (self._dataset,),
        ).fetchall()
        history = merged(
            Spend(float.fromhex(q), float.fromhex(z) if secret else 0.0, n, _accounted(mechanism))
            for q, z, mechanism, secret, n in rows
        )
        if any(not (0 < row.sampling_rate <= 1 and 0 <= row.noise_multiplier < math.inf) for row in history):
            raise ValueError("a row that no charge can have written")
        return history


def _accounted(mechanism: str) -> str:
    """The accountant's name for a mechanism: what is not private has z = 0, whatever its name."""
    return mechanism if mechanism in ("discrete_gaussian", "knorm") else "gaussian"
