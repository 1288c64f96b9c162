"""Moves a ledger so that a kill at any moment leaves one of the two files, never both.

    1. copy FROM, whole and verified, to TO.moving    FROM can be used
    2. rename FROM to FROM.moved                      neither can: the same command goes on
    3. rename TO.moving to TO                         TO can be used
    4. delete FROM.moved

Each step is on disk before the next begins. While FROM.moved or TO.moving exists,
`LedgerPlace.refuse_unfinished` lets no edge begin a new ledger at that place.
"""

from __future__ import annotations

import stat
from pathlib import Path

from tacit.errors import DataError, PrivacyError
from tacit.privacy import ledger
from tacit.privacy.ledger.chain import Chain
from tacit_services.disk import files
from tacit_services.identity.ledger_place import LedgerPlace


def move(source: Path, target: Path) -> list[Chain]:
    """Move the ledger `source` to `target`, or finish a killed move; returns its chains.

    Raises DataError where there is no such ledger; PrivacyError where an edge uses it, where
    `target` exists already, where the ledger is damaged, or where a disk refuses.
    """
    here = LedgerPlace(source)
    there = LedgerPlace(target)
    gone = here.retired
    _check_names(source, gone, target)
    with here.locked(), there.locked():
        try:
            if source.exists() or not gone.exists():
                _check_free(target)
                _check_free(gone)
                with ledger.locked_chains(source) as (chains, content):
                    _copy(content, chains, source, there.copy)
                    _rename(source, gone)
            else:
                chains = _resume(gone, there)
            return _finish(gone, there, chains)
        except OSError as error:
            raise PrivacyError(
                f"ledger {source}: {error.strerror or error}; run the same command again"
            ) from error


def _check_names(source: Path, gone: Path, target: Path) -> None:
    if source.is_symlink() or target.is_symlink():
        raise PrivacyError(
            f"ledger {source}: a link; name the files themselves, which the edges' locks belong to"
        )
    if not (source.is_file() or gone.is_file()):
        raise DataError(f"ledger {source}: there is no such file")
    if source.resolve() == target.resolve():
        raise PrivacyError(f"ledger {target}: is where it lies already")


def _check_free(target: Path) -> None:
    """Raise PrivacyError where `target`, or a file that SQLite keeps beside it, exists."""
    for path in (target, *(Path(f"{target}{suffix}") for suffix in ("-journal", "-wal", "-shm"))):
        if path.exists():
            raise PrivacyError(
                f"ledger {target}: {path.name} is there already; nothing is overwritten"
            )


def _copy(content: bytes, chains: list[Chain], source: Path, copy: Path) -> None:
    files.write(copy, content, stat.S_IMODE(source.stat().st_mode))
    if ledger.read_chains(copy) != chains:
        raise PrivacyError(f"ledger {copy}: is not what was written; nothing was moved")


def _resume(gone: Path, there: LedgerPlace) -> list[Chain]:
    """Go on with a move that was killed in step 2 or later.

    A ledger that is `there` must be the outcome of that move, or have grown from it; where none is,
    the copy is made again.
    """
    with ledger.locked_chains(gone) as (chains, content):
        if not there.path.exists():
            _check_free(there.path)
            _copy(content, chains, gone, there.copy)
            return chains
    found = ledger.read_chains(there.path)
    counts = {(chain.dataset, chain.lineage): chain.count for chain in found}
    if any(counts.get((chain.dataset, chain.lineage), -1) < chain.count for chain in chains):
        raise PrivacyError(
            f"ledger {there.path}: is there already, and is not what {gone.name} was moved to"
        )
    return chains


def _finish(gone: Path, there: LedgerPlace, chains: list[Chain]) -> list[Chain]:
    if not there.path.exists():
        _rename(there.copy, there.path)
    gone.unlink()
    files.sync(gone.parent)
    return chains


def _rename(old: Path, new: Path) -> None:
    old.rename(new)
    files.sync(new.parent)
