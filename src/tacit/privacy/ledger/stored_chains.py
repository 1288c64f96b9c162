"""The chains of a ledger's file, read without charging it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tacit.errors import DataError, PrivacyError
from tacit.privacy.accounting import History, Spend, merged
from tacit.privacy.ledger.chain import Chain
from tacit.privacy.ledger.file import (
    DAMAGE,
    check_format,
    gather_into_one_file,
    read_all_chains,
    read_orders,
    read_run_sessions,
    read_stored_splits,
    reason,
)


def read_chains(path: Path) -> list[Chain]:
    """Return every dataset's chain in the ledger file at `path`, neither changed nor verified.

    Raises DataError when there is no such file, PrivacyError when it cannot be read as a ledger.
    """
    with _read(path) as db:
        return read_all_chains(db)


def read_lifetime_orders(path: Path) -> dict[str, int]:
    """Return the order of every dataset in the ledger file at `path` whose lifetime has one.

    Raises as `read_chains`.
    """
    with _read(path) as db:
        return read_orders(db)


def read_run_histories(path: Path) -> dict[str, History]:
    """Return what each run has spent by the ledger file at `path`, by the run's name there.

    What no run of a federation has charged is under "". Raises as `read_chains`.
    """
    with _read(path) as db:
        runs = read_run_sessions(db)
        spent: dict[str, list[Spend]] = {}
        for chain in read_all_chains(db):
            for row in chain.rows:
                run = runs.get((chain.dataset, row.session), "")
                spent.setdefault(run, []).append(row.spend())
    return {run: merged(spends) for run, spends in spent.items()}


def read_splits(path: Path) -> dict[str, tuple[bytes, float]]:
    """Return key and share by which every dataset in the ledger file at `path` holds units out.

    A dataset whose split was never fixed has none. Raises as `read_chains`.
    """
    with _read(path) as db:
        return read_stored_splits(db)


@contextmanager
def _read(path: Path) -> Iterator[sqlite3.Connection]:
    """Let the block read one state of the file. Raises as `read_chains`."""
    if not path.is_file():
        raise DataError(f"ledger {path}: there is no such file")
    try:
        check_format(path)
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)
        ) as db:
            # In one transaction, so that all is read at one moment although an edge goes on
            # charging.
            db.execute("BEGIN")
            yield db
    except (*DAMAGE, OSError) as error:
        raise PrivacyError(f"ledger {path}: {reason(error)}") from error


@contextmanager
def locked_chains(path: Path) -> Iterator[tuple[list[Chain], bytes]]:
    """Yield every chain, verified, and the bytes of the whole file, locked against charges.

    What SQLite keeps beside the file is brought into it first.
    Raises DataError when there is no such file, PrivacyError when it cannot be read as a ledger or
    another process is charging it.
    """
    if not path.is_file():
        raise DataError(f"ledger {path}: there is no such file")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10.0)) as db:
        try:
            check_format(path)
            gather_into_one_file(db)
            db.execute("BEGIN IMMEDIATE")
            chains = read_all_chains(db)
            for chain in chains:
                chain.verify()
                chain.history()
            content = db.serialize()
        except DAMAGE as error:
            raise PrivacyError(f"ledger {path}: {error}") from error
        yield chains, content
