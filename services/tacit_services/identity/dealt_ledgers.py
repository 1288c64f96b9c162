"""The ledgers of one entry: a folder for each dealing, in it a file for each edge."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from tacit import file_lock
from tacit.errors import PrivacyError
from tacit.privacy.accounting.history import History, beyond
from tacit.privacy.ledger import Ledger, locked_chains, read_chains, read_lifetime_orders
from tacit_services.disk import files
from tacit_services.identity.data_register import DataRecord
from tacit_services.identity.ledger_place import LedgerPlace

DEALT = "dealt.lock"  # shared by all edges that have a ledger of the present dealing open
_BEFORE = "before"  # the run of questions that another ledger was charged for
RUN = "run.lock"  # of the run that trains on the data


def ledger_of(folder: Path, entry: DataRecord, slot: str) -> Path:
    """Return where the ledger of this edge lies in the present dealing."""
    return folder / str(entry.number) / f"edge-{slot}.db"


def present(folder: Path, entry: DataRecord) -> dict[str, Path]:
    """Return the ledgers of the present dealing, by the edge's number."""
    paths = (folder / str(entry.number)).glob("edge-*.db")
    ledgers = {path.stem.removeprefix("edge-"): path for path in paths}
    return dict(sorted(ledgers.items(), key=lambda pair: int(pair[0])))


def started(folder: Path, entry: DataRecord, slot: str) -> Path:
    """Return the ledger of `slot`. One that is new begins with what may have been spent before."""
    path = ledger_of(folder, entry, slot)
    if not path.exists():
        begin(path, entry.id, before(folder, entry), order(_sources(folder, entry)))
    return path


def begin(path: Path, dataset: str, history: History, order: int | None) -> None:
    """Make a ledger that has spent `history`, whole or not at all.

    order: the Rényi order of the data's lifetime; None: it was not fixed yet.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    _charge(fresh, dataset, history)
    if order is not None:
        with closing(Ledger(fresh, dataset)) as ledger:
            ledger.lifetime_order(order)
    fresh.rename(path)
    files.sync(path.parent)


def _charge(path: Path, dataset: str, history: History) -> None:
    """Charge `history` to a new ledger, of all rows: it has a split of its own."""
    for purposes, question in ((("training",), None), (("question", "judging"), _BEFORE)):
        spends = [spend for spend in history if spend.purpose in purposes]
        if not spends and question is not None:
            continue
        with closing(Ledger(path, dataset, question=question)) as ledger:
            for spend in spends:
                ledger.charge(
                    spend.sampling_rate,
                    spend.noise_multiplier,
                    spend.mechanism,
                    secret=True,
                    count=spend.count,
                )


def before(folder: Path, entry: DataRecord) -> History:
    """Return what an edge without a ledger in this dealing may have spent, at most."""
    return beyond((), *map(history, _sources(folder, entry)))


def most(folder: Path, entry: DataRecord) -> History:
    """Return an upper bound on what any edge spent: where it is dealt anew, each starts there."""
    return beyond((), *map(history, all_of(folder, entry)))


def all_of(folder: Path, entry: DataRecord) -> list[Path]:
    """Return the ledgers of the present dealing, and the one that they started from."""
    return [*_earlier(folder, entry), *present(folder, entry).values()]


def _sources(folder: Path, entry: DataRecord) -> list[Path]:
    """Return the ledgers that a new one of this dealing must not be below."""
    if entry.dealing:
        return _earlier(folder, entry)
    return all_of(folder, entry)


def order(paths: Iterable[Path]) -> int | None:
    """Return the Rényi order of the lifetime of data with these ledgers; None: none was fixed yet.

    Of several it is the smallest, a function of orders that were fixed before.
    """
    orders = (each for path in paths for each in read_lifetime_orders(path).values())
    return min(orders, default=None)


def owed(folder: Path, entry: DataRecord, slot: str, others: list[str]) -> History:
    """Return what the ledger of `slot` lacks to be no lower than those of `others`."""
    every = [history(ledger_of(folder, entry, other)) for other in others]
    return beyond(history(ledger_of(folder, entry, slot)), *every)


def raise_to(folder: Path, entry: DataRecord, slot: str, others: list[str]) -> None:
    """Charge the ledger of `slot` what it lacks, if it is there: a new one begins high enough.

    Raises PrivacyError while an edge has it open.
    """
    path = ledger_of(folder, entry, slot)
    if path.exists() and owed(folder, entry, slot, others):
        with LedgerPlace(path).locked():
            _charge(path, entry.id, owed(folder, entry, slot, others))


def _earlier(folder: Path, entry: DataRecord) -> list[Path]:
    if entry.before is None:
        return []
    return [folder / entry.before]


def spent(root: Path, entry: DataRecord | None) -> bool:
    """Return whether anything was ever spent by this entry."""
    if entry is None:
        return False
    folder = root / entry.id
    return bool(before(folder, entry)) or any(map(history, folder.glob("*/edge-*.db")))


def history(path: Path) -> History:
    """Return what this ledger has spent; nothing where it is not there."""
    if not path.exists():
        return ()
    settle(path)
    chains = read_chains(path)
    if chains:
        return chains[0].history()
    return ()


def settle(path: Path) -> None:
    """Take back what a killed edge has left half done, which nobody else does before it is read.

    Where the ledger is in use, the edge that uses it has done so.
    """
    journal = Path(f"{path}-journal")
    if not journal.exists() or not any(journal.read_bytes()[:8]):
        return
    with suppress(PrivacyError), LedgerPlace(path).locked(), locked_chains(path):
        pass


def refuse_in_use(folder: Path, name: str, *locks: str) -> None:
    """Raise PrivacyError while one of these locks of the data is held."""
    for lock in locks:
        if file_lock.is_held(folder / lock, shared=True):
            raise PrivacyError(
                f"data {name}: an edge is training on it as it was dealt before, and this "
                "run deals it in another way; wait for its end, or stop it"
            )
