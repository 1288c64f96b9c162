"""The ledgers of users' own data: one for each edge, in the user's data folder.

    ledgers/<id>/data.json           whose data it is, what it was called, what its files were
    ledgers/<id>/<dealing>/edge-<n>.db

Data is found by its name or by its file's bytes, so it is found again when the file grows, is
replaced or renamed, whatever run or folder uses it. Nothing here deletes a ledger. Where it is not
clear which edge had a person before, an edge starts from the largest spend of any.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tacit.datasets.own.own_rows import EDGE
from tacit.datasets.source import Owned
from tacit.errors import PrivacyError
from tacit.privacy.accounting import History, epsilon_pld
from tacit.privacy.ledger import Ledger, read_chains
from tacit_services.disk import files

FORMAT = 1
_ANY_EDGE = re.escape(EDGE)  # in a name, as a pattern
_DEALT = "dealt.lock"  # shared by all edges that have a ledger of the present dealing open
_DELTA = 1e-5  # δ at which spends are compared


@dataclass(frozen=True, slots=True)
class Entry:
    """The record of one owner's data, as in data.json.

    id: the folder's name, and what the ledgers call their data. names, digests: all that the data
    was ever called, and the SHA-256 of every file that it ever was. unit: fixed by the first
    charge. dealing: how the file is dealt now, in words; number: of the dealing. before: the ledger
    that an edge of this dealing starts from, relative to the folder. edges: SHA-256 of the files of
    each edge, where they have files of their own.
    """

    id: str
    names: tuple[str, ...]
    digests: tuple[str, ...]
    unit: str
    dealing: str
    number: int = 0
    before: str | None = None
    edges: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LedgerLocation:
    """A ledger's file, and what it calls the data."""

    path: Path
    dataset: str


def place(owned: Owned, number: int, home: Path) -> LedgerLocation:
    """The ledger of edge `number` of this data, in `home`/ledgers; registered before it returns.

    Raises PrivacyError where the name belongs to one ledger and the bytes to another, for another
    unit than the one that was charged, while an edge works on another dealing, and where the folder
    cannot be read or written.
    """
    with opened(owned, number, home) as found:
        return found


@contextmanager
def opened(owned: Owned, number: int, home: Path) -> Iterator[LedgerLocation]:
    """`place`, and as long as the context lasts, nobody has this data dealt in another way."""
    with ExitStack() as kept:
        yield _placed(owned, number, home / "ledgers", kept)


def _placed(owned: Owned, number: int, root: Path, kept: ExitStack) -> LedgerLocation:
    try:
        with _locked(root):
            entry = _registered(root, owned, number)
            slot = _slot(entry, owned, number)
            found = LedgerLocation(_started(root / entry.id, entry, slot), entry.id)
            lock = kept.enter_context((root / entry.id / _DEALT).open("ab"))
            fcntl.flock(lock, fcntl.LOCK_SH)
            return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrivacyError(
            f"ledgers {root}: {error}; an edge needs a durable place for them"
        ) from error


def history(owned: Owned, number: int, home: Path) -> History:
    """Return what edge `number` of this data has spent; nothing is written or registered.

    Raises PrivacyError as `place`.
    """
    root = home / "ledgers"
    entry = _found(root, owned) if root.is_dir() else None
    if entry is None:
        return ()
    folder = root / entry.id
    _with_unit(folder, entry, owned)
    if entry.dealing != owned.dealing:
        largest = _largest(folder / str(entry.number))
        return _before(folder, entry) if largest is None else _history(largest)
    path = folder / str(entry.number) / f"edge-{_slot(entry, owned, number)}.db"
    return _history(path) if path.exists() else _before(folder, entry)


def known(place: Path, digest: str, home: Path) -> str | None:
    """Return the name of the data at `place`, if a ledger knows its path or its bytes.

    A ledger of a path that contains it, or that it contains, counts too. Raises PrivacyError for a
    damaged register.
    """
    for path in sorted((home / "ledgers").glob("*/data.json")):
        entry = _read(path)
        if digest in entry.digests or any(_overlap(place, name) for name in entry.names):
            return entry.names[0]
    return None


def _overlap(place: Path, name: str) -> bool:
    """Whether `place` is what `name` says, where it says a path, or one is in the other."""
    ours, named = place.resolve().parts, Path(name).parts
    if not Path(name).is_absolute():  # its owner's name
        return False
    return all(
        re.fullmatch(re.escape(there).replace(_ANY_EDGE, "[0-9]+"), here) is not None
        for here, there in zip(ours, named, strict=False)  # as far as both go
    )


@contextmanager
def held(data: Iterable[Owned], home: Path) -> Iterator[None]:
    """Keep these data for one run of this machine, as long as the context lasts.

    Two runs at once may deal the same rows in two ways; then each edge would have a ledger in both.
    Names and bytes are registered before the next run can ask, so a copy is found, too. Raises
    PrivacyError where another run has one of them.
    """
    root = home / "ledgers"
    with ExitStack() as kept:
        with _locked(root):
            ours: set[str] = set()
            for one in data:
                entry = _found(root, one) or _new(one)
                _write(root / entry.id, _named(entry, one))
                if entry.id not in ours:
                    _keep(kept, root / entry.id, one.name)
                ours.add(entry.id)
        yield


def _keep(kept: ExitStack, folder: Path, name: str) -> None:
    """Lock the folder of some data for a run, as long as `kept` lasts. Raises PrivacyError."""
    lock = kept.enter_context((folder / "run.lock").open("ab"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PrivacyError(
            f"data {name}: another run is training on it; wait for its end, or stop it"
        ) from error


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (root / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _registered(root: Path, owned: Owned, number: int) -> Entry:
    """The data's entry, which knows its name, its file and its dealing from now on."""
    entry = _found(root, owned) or _new(owned)
    folder = root / entry.id
    entry = _with_unit(folder, entry, owned)
    if entry.dealing != owned.dealing:
        _refuse_in_use(folder, owned)
        largest = _largest(folder / str(entry.number))
        before = entry.before if largest is None else str(largest.relative_to(folder))
        entry = replace(
            entry, dealing=owned.dealing, number=entry.number + 1, before=before, edges={}
        )
    entry = _named(entry, owned)
    if not owned.dealing:
        slot = _slot(entry, owned, number)
        known = entry.edges.get(slot, ())
        entry = replace(entry, edges=entry.edges | {slot: _added(known, owned.digest)})
    _write(folder, entry)
    return entry


def _refuse_in_use(folder: Path, owned: Owned) -> None:
    """Raise PrivacyError while an edge has a ledger of the dealing before open."""
    if not (folder / _DEALT).exists():
        return
    with (folder / _DEALT).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PrivacyError(
                f"data {owned.name}: an edge is training on it as it was dealt before, and this "
                "run deals it in another way; wait for its end, or stop it"
            ) from error


def _found(root: Path, owned: Owned) -> Entry | None:
    entries = [_read(path) for path in sorted(root.glob("*/data.json"))]
    named = [entry for entry in entries if owned.name in entry.names]
    alike = [entry for entry in entries if owned.digest in entry.digests]
    if named and alike and named[0].id != alike[0].id:
        raise PrivacyError(
            f"data {owned.name}: has a ledger by its name, and another by its bytes, which are "
            f"those of {alike[0].names[0]}; with two the same people would have two budgets: "
            f'say data.name = "{alike[0].names[0]}"'
        )
    return next(iter(named + alike), None)


def _new(owned: Owned) -> Entry:
    name = hashlib.sha256(owned.name.encode()).hexdigest()[:16]
    return Entry(name, (), (), owned.unit, owned.dealing)


def _named(entry: Entry, owned: Owned) -> Entry:
    """Return the entry that knows the data's name and bytes from now on."""
    names, digests = _added(entry.names, owned.name), _added(entry.digests, owned.digest)
    return replace(entry, names=names, digests=digests)


def _with_unit(folder: Path, entry: Entry, owned: Owned) -> Entry:
    if entry.unit != owned.unit and any(_history(path) for path in folder.glob("*/edge-*.db")):
        raise PrivacyError(
            f"data {owned.name}: its ledger counts by {entry.unit!r}, and data.unit says "
            f"{owned.unit!r}; what was charged for one unit says nothing of another"
        )
    return replace(entry, unit=owned.unit)


def _slot(entry: Entry, owned: Owned, number: int) -> str:
    """The number under which this edge's ledger is kept: of the file with these bytes, or its
    own.
    """
    alike = [slot for slot, digests in entry.edges.items() if owned.digest in digests]
    return alike[0] if alike and not owned.dealing else str(number)


def _started(folder: Path, entry: Entry, slot: str) -> Path:
    """The ledger of `slot`. One that is new begins with what may have been spent before."""
    path = folder / str(entry.number) / f"edge-{slot}.db"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = _before(folder, entry)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with closing(Ledger(fresh, entry.id)) as ledger:
        for spend in before:
            ledger.charge(
                spend.sampling_rate,
                spend.noise_multiplier,
                spend.mechanism,
                secret=True,
                count=spend.count,
            )
    fresh.rename(path)
    files.sync(path.parent)
    return path


def _before(folder: Path, entry: Entry) -> History:
    """Return what an edge without a ledger in this dealing may have spent: the most of any."""
    here = None if entry.dealing else _largest(folder / str(entry.number))
    earlier = None if entry.before is None else folder / entry.before
    found = [_history(path) for path in (here, earlier) if path is not None]
    return max(found, key=_epsilon, default=())


def _largest(folder: Path) -> Path | None:
    """The ledger in `folder` that has spent most; None where none has spent anything."""
    spent = [path for path in sorted(folder.glob("edge-*.db")) if _history(path)]
    return max(spent, key=lambda path: _epsilon(_history(path)), default=None)


def _epsilon(history: History) -> float:
    return epsilon_pld(history, _DELTA)


def _history(path: Path) -> History:
    chains = read_chains(path)
    return chains[0].history() if chains else ()


def _added(known: tuple[str, ...], one: str) -> tuple[str, ...]:
    return known if one in known else (*known, one)


def _read(path: Path) -> Entry:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise PrivacyError(
            f"{path}: is damaged ({error}); which ledger is whose cannot be told without it"
        ) from error
    if content.pop("format") != FORMAT:
        raise ValueError(f"{path}: has another format, this tacit reads {FORMAT}")
    edges = {slot: tuple(digests) for slot, digests in content.pop("edges").items()}
    names, digests = tuple(content.pop("names")), tuple(content.pop("digests"))
    return Entry(names=names, digests=digests, edges=edges, **content)


def _write(folder: Path, entry: Entry) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = {"format": FORMAT, **asdict(entry)}
    files.write(folder / "data.json", json.dumps(content, indent=1).encode(), files.SECRET)
    files.sync(folder.parent)
