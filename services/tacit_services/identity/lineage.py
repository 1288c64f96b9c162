"""The ledger that belongs to an identity's data: enrolled once, then demanded at every start.

The ledger goes with the data (`TACIT_LEDGER`), not with the identity, the container or the run. The
file `enrolled.json` in the identity's directory remembers the lineage of every dataset's ledger:
{"format": 1, "ledgers": {dataset: lineage in hex}}. So a ledger that is gone, was emptied or was
exchanged is not taken for a new one. Files of tacit 0.1 are the inner object alone.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tacit_services.disk import files
from tacit_services.identity.folder import Identity

_MARKER, _FORMAT = "enrolled.json", 1


@contextmanager
def ledger(identity: Identity, setting: str | None, dataset: str) -> Iterator[Ledger]:
    """Open and lock the ledger of `dataset` for this identity, until the end of the block.

    It is the file `setting`, in which {n} stands for the identity's number, or (None) a file in the
    identity's directory. Raises PrivacyError

    - when another edge uses it,
    - when it is not the one that was enrolled here,
    - when it is missing or empty although this identity has sent messages before,
    - when messages of this identity were paid with a ledger that is not here.
    """
    place = (
        str(identity.path / "ledger.db")
        if setting is None
        else setting.replace("{n}", str(identity.number))
    )
    path = Path(place)
    if place == ":memory:" or (path.exists() and not path.is_file()):
        raise PrivacyError(f"ledger {path}: not a file; an edge needs a durable place for it")
    with locked(path):
        refuse_unfinished(path)
        known = _enrolled(identity.path).get(dataset)
        if (
            known is None
            and not (path.is_file() and path.stat().st_size)
            and _used_before_markers(identity.path)
        ):
            raise PrivacyError(
                f"ledger {path}: is missing or empty, but {identity.edge} has sent messages "
                "before; refusing to train without its history"
            )
        with closing(Ledger(path, dataset, lineage=known)) as opened:
            _check_payers(identity, opened.lineage)
            if known is None:
                _enrol(identity.path, dataset, opened.lineage)
            yield opened


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


def _enrolled(folder: Path) -> dict[str, bytes]:
    """The lineage of every dataset's ledger that is enrolled here."""
    try:
        content = json.loads((folder / _MARKER).read_bytes())
        if content.get("format", _FORMAT) != _FORMAT:
            raise ValueError(f"has format {content['format']!r}, this tacit reads {_FORMAT}")
        ledgers = content["ledgers"] if "format" in content else content
        return {dataset: bytes.fromhex(lineage) for dataset, lineage in ledgers.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise PrivacyError(
            f"identity {folder / _MARKER}: {error}; refusing to train without it"
        ) from error


def _check_payers(identity: Identity, lineage: bytes) -> None:
    """Raise PrivacyError where a ledger that is unknown here has paid for a message.

    The outbox knows which ledgers have paid. Otherwise somebody could exchange the ledger together
    with `enrolled.json`.
    """
    path = identity.path / "outbox.db"
    if not path.is_file():
        return
    try:
        with closing(sqlite3.connect(path)) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'anchor'").fetchone():
                return  # an outbox of an older tacit
            payers = {bytes(row[0]) for row in db.execute("SELECT lineage FROM anchor")}
    except sqlite3.Error as error:
        raise PrivacyError(f"outbox {path}: {error}") from error
    if payers - set(_enrolled(identity.path).values()) - {lineage}:
        raise PrivacyError(
            f"ledger of {identity.edge}: messages in {path} were paid with a ledger "
            "that is not here any more; it was exchanged, refusing to train"
        )


def _enrol(folder: Path, dataset: str, lineage: bytes) -> None:
    """Remember the lineage, durably, before anything is charged."""
    path = folder / _MARKER
    try:
        ledgers = {
            name: known.hex() for name, known in (_enrolled(folder) | {dataset: lineage}).items()
        }
        files.write(
            path, json.dumps({"format": _FORMAT, "ledgers": ledgers}).encode("ascii"), files.PUBLIC
        )
    except OSError as error:
        raise PrivacyError(
            f"identity {path}: {error.strerror or error}; nothing was computed"
        ) from error


def _used_before_markers(folder: Path) -> bool:
    """Whether this identity has sent messages but has no marker, as with an older tacit."""
    path = folder / "outbox.db"
    if (folder / _MARKER).exists() or not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT 1 FROM counter LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return True  # a damaged outbox was in use; the error comes when it is opened
