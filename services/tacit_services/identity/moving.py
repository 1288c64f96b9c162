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
    """Move the ledger `source` to `target`, or finish a killed move, and return its chains.

    Raises DataError if there is no such ledger. Raises PrivacyError if an edge uses it, if `target`
    exists already, if the ledger is damaged, or if a disk refuses.
    """
    origin = LedgerPlace(source)
    destination = LedgerPlace(target)
    retired = origin.retired
    _check_names(source, retired, target)
    with origin.locked(), destination.locked():
        try:
            if source.exists() or not retired.exists():
                _check_free(target)
                _check_free(retired)
                with ledger.locked_chains(source) as (chains, content):
                    _copy(content, chains, source, destination.copy)
                    _rename(source, retired)
            else:
                chains = _resume(retired, destination)
            return _finish(retired, destination, chains)
        except OSError as error:
            raise PrivacyError(
                f"ledger {source}: {error.strerror or error}; run the same command again"
            ) from error


def _check_names(source: Path, retired: Path, target: Path) -> None:
    if source.is_symlink() or target.is_symlink():
        raise PrivacyError(
            f"ledger {source}: a link; name the files themselves, which the edges' locks belong to"
        )
    if not (source.is_file() or retired.is_file()):
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


def _resume(retired: Path, destination: LedgerPlace) -> list[Chain]:
    """Go on with a move that was killed in step 2 or later.

    A ledger at `destination` must be the outcome of that move, or have grown from it; where there
    is none, the copy is made again.
    """
    with ledger.locked_chains(retired) as (chains, content):
        if not destination.path.exists():
            _check_free(destination.path)
            _copy(content, chains, retired, destination.copy)
            return chains
    moved = ledger.read_chains(destination.path)
    counts = {(chain.dataset, chain.lineage): chain.count for chain in moved}
    if any(counts.get((chain.dataset, chain.lineage), -1) < chain.count for chain in chains):
        raise PrivacyError(
            f"ledger {destination.path}: is there already, and is not what {retired.name} was "
            "moved to"
        )
    return chains


def _finish(retired: Path, destination: LedgerPlace, chains: list[Chain]) -> list[Chain]:
    if not destination.path.exists():
        _rename(destination.copy, destination.path)
    retired.unlink()
    files.sync(retired.parent)
    return chains


def _rename(old: Path, new: Path) -> None:
    old.rename(new)
    files.sync(new.parent)
