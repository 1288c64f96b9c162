"""The ledger that belongs to an identity's data: enrolled once, then demanded at every start.

The ledger goes with the data (`TACIT_LEDGER`), not with the identity, the container or the run.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tacit_services.identity import enrolment, old_outbox
from tacit_services.identity.folder import Identity

log = logging.getLogger("tacit.identity")


@contextmanager
def ledger(identity: Identity, setting: str | None, dataset: str) -> Iterator[Ledger]:
    """Open and lock the ledger of `dataset` for this identity, until the end of the block.

    It is the file `setting`, in which {n} stands for the identity's number, or (None) a file in the
    identity's directory. Raises PrivacyError

    - when another edge uses it,
    - when it is not the one that was enrolled here, or an older copy than was last opened here,
    - when it is missing or empty although this identity has sent messages before,
    - when messages in an older tacit's outbox were paid with a ledger that is not here.
    """
    path = _place(identity, setting)
    with locked(path):
        refuse_unfinished(path)
        known = enrolment.read(identity.path)
        _refuse_beginning(path, identity, dataset)
        enrolled = known.ledgers.get(dataset)
        lineage = None if enrolled is None else enrolled.lineage
        with closing(Ledger(path, dataset, lineage=lineage)) as opened:
            if enrolled is not None:
                opened.require(enrolled.charged)
            lineages = {one.lineage for one in known.ledgers.values()}
            old_outbox.check(identity.path, opened, lineages)
            _enrol(identity.path, known.noting(dataset, opened.lineage, opened.charged()))
            try:
                yield opened
            finally:
                opened.close()
                _note(identity.path, known.noting(dataset, opened.lineage, opened.charged()))


def _place(identity: Identity, setting: str | None) -> Path:
    named = str(identity.path / "ledger.db") if setting is None else setting
    path = Path(named if setting is None else named.replace("{n}", str(identity.number)))
    if str(path) == ":memory:" or (path.exists() and not path.is_file()):
        raise PrivacyError(f"ledger {path}: not a file; an edge needs a durable place for it")
    return path


def _refuse_beginning(path: Path, identity: Identity, dataset: str) -> None:
    """Raise PrivacyError where a new ledger would begin although messages were sent before.

    By an identity without `enrolled.json`, of an older tacit: with it the ledger is demanded.
    """
    begins = not (path.is_file() and path.stat().st_size)
    unmarked = not (identity.path / enrolment.FILE).exists()
    if begins and unmarked and old_outbox.used(identity.path):
        raise PrivacyError(
            f"ledger {path}: is missing or empty, but {identity.edge} has sent messages "
            "before; refusing to train without its history"
        )


def _enrol(folder: Path, known: enrolment.Enrolment) -> None:
    """Remember what was opened, durably, before anything is charged."""
    try:
        enrolment.write(folder, known)
    except OSError as error:
        raise PrivacyError(
            f"identity {folder / enrolment.FILE}: {error.strerror or error}; nothing was computed"
        ) from error


def _note(folder: Path, known: enrolment.Enrolment) -> None:
    """Remember how far it came; what was noted when it was opened is true, too."""
    try:
        enrolment.write(folder, known)
    except OSError as error:
        log.warning("identity %s: %s", folder / enrolment.FILE, error.strerror or error)


def copy_path(target: Path) -> Path:
    """Return where `tacit ledger move` writes its copy on the way to `target`."""
    return Path(f"{target}.moving")


def retired_path(source: Path) -> Path:
    """Return the name that `tacit ledger move` gives to a `source` that it takes out of use."""
    return Path(f"{source}.moved")


def refuse_unfinished(path: Path) -> None:
    """Raise PrivacyError where a move from or to `path` was killed half-way.

    A new ledger at that place would not know what was charged before.
    """
    for left in (copy_path(path), retired_path(path)):
        if left.exists():
            raise PrivacyError(
                f"ledger {path}: {left} is of a move that was not finished: `tacit ledger move` "
                f"again"
            )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the ledger file at `path`, whether it exists or not, until the end of the block.

    Raises PrivacyError where another process has it.
    """
    try:
        lock = Path(f"{path}.lock").open("ab")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise PrivacyError(
            f"ledger {path}: {error.strerror or error}; an edge needs a durable place for it"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PrivacyError(
                f"ledger {path}: an edge is using it, and two would spend one budget "
                f"(TACIT_LEDGER: a file for each)"
            ) from error
        yield
