"""The ledgers of one entry: a folder for each dealing, in it a file for each edge."""

from __future__ import annotations

import fcntl
from contextlib import closing
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.privacy.accounting import History, epsilon_pld
from tacit.privacy.ledger import Ledger, read_chains
from tacit_services.disk import files
from tacit_services.identity.data_register import Entry

DEALT = "dealt.lock"  # shared by all edges that have a ledger of the present dealing open
RUN = "run.lock"  # of the run that trains on the data
_DELTA = 1e-5  # δ at which spends are compared


def ledger_of(folder: Path, entry: Entry, slot: str) -> Path:
    """Where the ledger of this edge lies in the present dealing."""
    return folder / str(entry.number) / f"edge-{slot}.db"


def started(folder: Path, entry: Entry, slot: str) -> Path:
    """The ledger of `slot`. One that is new begins with what may have been spent before."""
    path = ledger_of(folder, entry, slot)
    if not path.exists():
        begin(path, entry.id, before(folder, entry))
    return path


def begin(path: Path, dataset: str, history: History) -> None:
    """Make a ledger that has spent `history`, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with closing(Ledger(fresh, dataset)) as ledger:
        for spend in history:
            ledger.charge(
                spend.sampling_rate,
                spend.noise_multiplier,
                spend.mechanism,
                secret=True,
                count=spend.count,
            )
    fresh.rename(path)
    files.sync(path.parent)


def before(folder: Path, entry: Entry) -> History:
    """Return what an edge without a ledger in this dealing may have spent: the most of any."""
    here = None if entry.dealing else largest(folder, entry)
    earlier = None if entry.before is None else folder / entry.before
    found = [history(path) for path in (here, earlier) if path is not None]
    return max(found, key=_epsilon, default=())


def most(folder: Path, entry: Entry) -> History:
    """Return what any edge may have spent: where it is dealt anew, this is where each starts."""
    path = largest(folder, entry)
    return before(folder, entry) if path is None else history(path)


def largest(folder: Path, entry: Entry) -> Path | None:
    """The ledger of the present dealing that has spent most; None where none has."""
    paths = sorted((folder / str(entry.number)).glob("edge-*.db"))
    charged = [path for path in paths if history(path)]
    return max(charged, key=lambda path: _epsilon(history(path)), default=None)


def spent(root: Path, entry: Entry | None) -> bool:
    """Whether anything was ever spent by this entry."""
    if entry is None:
        return False
    folder = root / entry.id
    return bool(before(folder, entry)) or any(map(history, folder.glob("*/edge-*.db")))


def history(path: Path) -> History:
    """Return what this ledger has spent; nothing where it is not there."""
    chains = read_chains(path) if path.exists() else ()
    return chains[0].history() if chains else ()


def refuse_in_use(folder: Path, name: str, *locks: str) -> None:
    """Raise PrivacyError while one of these locks of the data is held."""
    for lock in locks:
        if not (folder / lock).exists():
            continue
        with (folder / lock).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise PrivacyError(
                    f"data {name}: an edge is training on it as it was dealt before, and this "
                    "run deals it in another way; wait for its end, or stop it"
                ) from error


def _epsilon(history: History) -> float:
    return epsilon_pld(history, _DELTA)
