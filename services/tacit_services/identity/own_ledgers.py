"""The ledgers of users' own data: one for each edge, in the user's data folder.

    ledgers/<id>/data.json           whose data it is, what it was called, what its files were
    ledgers/<id>/units-<part>.json   a sketch of whose rows they were
    ledgers/<id>/<dealing>/edge-<n>.db

Data is found by its name, by its file's bytes, or by a sketch of its units and rows. So every run
and folder finds it again when the file grows, is replaced, renamed, copied or written in another
form. Nothing here deletes a ledger. Where it is not clear which edge had a person before, an edge
starts from what no edge has spent more than (`beyond`).

**What ε bounds.** Let a unit be in the data of some runs, all of which were found to be of one
entry. Then all that was released of the unit is charged in ledgers of that entry. Say that
a ledger covers the unit if it costs, at every δ, no less than all that was released of the unit.
The ledger of the edge that has the unit covers it, by induction over what may happen:

- A charge. The unit is at one edge at a time, and the charge is in that edge's ledger.
- A new dealing. Every edge begins with a bound on every ledger before, the unit's own among them.
- One file is dealt, and it changes. The unit's edge depends on nothing but the unit and the seed.
- Edges have files of their own, and the unit moves from site A to B. If B has no ledger yet, it
  begins with a bound on all ledgers. Else B's file has units in common with what A ever had. Then
  B's ledger is raised at each start, before the file is used, until it is no lower than A's, which
  covers the unit. Where B's file has nobody of B's before, B goes on with A's ledger itself. A unit
  that is at two sites at once is covered by neither ledger, but by both (data.people="shared").

Data that is known by its sketch alone is dealt anew, unless its units are people and it is dealt as
before. In that case a person's edge depends on nothing but the id and the seed. Entries that are
joined go on with the composition of what they had spent. So ε is an upper bound for a unit as far
as its data was found to be of one entry. `sketch` states the errors of this. It is not found if
files share less than 3 %, or if one is over some 250 times larger than the other (for rows, 100).
It is not found if rows alone could tell, but other columns are read, or they are too few or too
much alike. Nor is it found in another user's data folder. There name and bytes alone tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tacit import file_lock
from tacit.errors import PrivacyError
from tacit.known_data.owned import EDGE, Owned
from tacit.known_data.sketch import Sketches
from tacit.privacy.accounting import History
from tacit_services.identity import (
    data_register,
    dealt_ledgers,
    edge_slots,
    joining,
    kinship,
    lineage,
    sketch_files,
)
from tacit_services.identity.data_register import DataRecord
from tacit_services.identity.folder import Identity
from tacit_services.identity.kinship import Apart, Kin, NotApart
from tacit_services.identity.ledger_loan import LedgerLoan, LifetimeBound
from tacit_services.identity.ledger_place import HeldLock, LedgerPlace
from tacit_services.identity.sketch_files import PartSketches

_ANY_EDGE = re.escape(EDGE)  # in a name, as a pattern


@dataclass(frozen=True, slots=True)
class LedgerLocation:
    """A ledger's file, and what it calls the data. continues: whose it was; None: it begins.

    apart: known data that has the same units, and is of others, as the owner says. lock: while it
    lasts, nothing deals this data in another way.
    """

    path: Path
    dataset: str
    continues: str | None = None
    apart: tuple[Apart | NotApart, ...] = ()
    lock: HeldLock | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LedgerOrigin:
    """The ledger that some data continues, and how the data was recognised.

    continues: the name of that ledger; None: a new one begins. by: name, bytes, people or rows.
    """

    continues: str | None
    by: str


@dataclass(frozen=True, slots=True)
class DataSpending:
    """The spending of an edge's data. unseen: ledgers of tacit 0.2, which know no rows yet.

    tells: whether a changed copy of the data will be known. apart: as of `LedgerLocation`.
    rows_known: whether its ledger knows the rows of these very bytes.
    """

    origin: LedgerOrigin
    history: History
    unseen: int
    tells: bool
    apart: tuple[Apart | NotApart, ...] = ()
    rows_known: bool = False


@dataclass(frozen=True, slots=True)
class DataLedgers:
    """The ledgers of some data. names: all that it was ever called. dealing: of one file, in words.

    started: the ledger that every edge of this dealing started from, if any. edges: each edge's.
    """

    names: tuple[str, ...]
    unit: str
    dealing: str
    started: Path | None
    edges: dict[str, Path]


def place(owned: Owned, number: int, home: Path) -> LedgerLocation:
    """Register and return the ledger of edge `number` of this data, in `home`/ledgers.

    Raises PrivacyError if the name belongs to one ledger and the bytes to another, if it has units
    of two, or if the folder cannot be read or written. Raises it also for another unit than the
    charged one, and while an edge works on another dealing. Raises ConfigError and DataError of
    data that cannot be read.
    """
    with opened(owned, number, home) as location:
        return location


@contextmanager
def opened(owned: Owned, number: int, home: Path) -> Iterator[LedgerLocation]:
    """Yield `place`; until the end of the context, no run deals this data in another way."""
    with ExitStack() as stack:
        yield _placed(owned, number, home / "ledgers", stack)


def _placed(owned: Owned, number: int, root: Path, stack: ExitStack) -> LedgerLocation:
    drawn = _drawn(root, owned, number)
    with _durable(root), data_register.locked(root):
        earlier = kinship.find(root, owned, drawn).entry
        entry = _registered(root, owned, number, drawn)
        folder = root / entry.id
        slot = edge_slots.slot_of(folder, entry, owned, number, drawn)
        path = dealt_ledgers.started(folder, entry, slot)
        lock = stack.enter_context(file_lock.locked(folder / dealt_ledgers.DEALT, shared=True))
        apart = kinship.apart(root, owned, edge_slots.sketches(folder, owned, slot, drawn))
        continues = None if earlier is None else earlier.names[0]
        dealt = HeldLock(folder / dealt_ledgers.DEALT, lock.fileno(), shared=True)
        return LedgerLocation(path, entry.id, continues, apart, dealt)


@contextmanager
def lent(
    identity: Identity, owned: Owned, home: Path, bound: LifetimeBound
) -> Iterator[tuple[LedgerLocation, LedgerLoan]]:
    """Hold the ledger of a member's data until the end of the block, for its workers.

    The data of a member is one edge with a file of its own, number 0 in every federation: its
    ledger belongs to it, with every identity. Raises PrivacyError where another member or run has
    the data, and as `place` and `lineage.lent`. Raises ConfigError and DataError as `place`.
    """
    mine = replace(owned, dealing="")
    with held([mine], home) as (origin,), opened(mine, 0, home) as location:
        place = LedgerPlace(location.path)
        # Of each dealing: a new one has another ledger, which begins with what was spent before.
        record = str(location.path.relative_to(home / "ledgers"))
        with lineage.lent(identity, place, location.dataset, bound, record) as loan:
            assert location.lock is not None
            yield (
                replace(location, continues=origin.continues),
                replace(loan, locks=(*loan.locks, location.lock)),
            )


def standing(owned: Owned, number: int, home: Path) -> DataSpending:
    """Return what is known of this data; nothing is written or registered. Raises as `place`."""
    root = home / "ledgers"
    with _durable(root):
        if root.is_dir():
            key = sketch_files.key_of(root)
        else:
            key = None
        stored = _stored_sketches(root, owned, number)
    if stored is not None:
        drawn = None
    else:
        drawn = sketch_files.drawn(owned, key or b"")
    tells = _tells(stored.sketches if stored else drawn)
    if not root.is_dir():
        return DataSpending(LedgerOrigin(None, ""), (), 0, tells)
    with _durable(root):
        kin = kinship.find(root, owned, None if key is None else drawn)
        unseen = sum(
            next(sketch_files.parts(root / entry.id), None) is None
            for entry in data_register.entries(root)
        )
        if kin.entry is None:
            name = None
        else:
            name = kin.entry.names[0]
        spent = _history(root, kin, owned, number, drawn)
        if key is None:
            sketches = None
        else:
            if stored:
                sketches = stored.sketches
            else:
                sketches = drawn
        apart = kinship.apart(root, owned, sketches)
        return DataSpending(
            LedgerOrigin(name, kin.by), spent, unseen, tells, apart, stored is not None
        )


def account(name: str, home: Path) -> DataLedgers | None:
    """Return the ledgers of the data that was ever called so; None: there is none.

    Raises PrivacyError.
    """
    return next((account for account in accounts(home) if name in account.names), None)


def accounts(home: Path) -> list[DataLedgers]:
    """Return the ledgers of all data that has one in the user's folder `home`.

    Raises PrivacyError.
    """
    root = home / "ledgers"
    with _durable(root):
        return [_account(root / entry.id, entry) for entry in data_register.entries(root)]


def _account(folder: Path, entry: DataRecord) -> DataLedgers:
    started = None if entry.before is None else folder / entry.before
    edges = dealt_ledgers.present(folder, entry)
    return DataLedgers(entry.names, entry.unit, entry.dealing, started, edges)


def in_use(name: str, home: Path) -> bool:
    """Return whether a run of this machine has the data that was ever called so, now.

    Nothing is written. Raises PrivacyError.
    """
    root = home / "ledgers"
    with _durable(root):
        entry = data_register.with_name(root, name)
        if entry is None:
            return False
        return file_lock.is_held(root / entry.id / dealt_ledgers.RUN)


def prepare(home: Path) -> None:
    """Let rows be read once: `standing` reads them by the key that `held` will read them by.

    No data is known by that. Raises PrivacyError.
    """
    root = home / "ledgers"
    with _durable(root), data_register.locked(root):
        sketch_files.made_key(root)


def history(owned: Owned, number: int, home: Path) -> History:
    """Return what edge `number` of this data has spent; nothing is written. Raises as `place`."""
    return standing(owned, number, home).history


def _history(root: Path, kin: Kin, owned: Owned, number: int, drawn: Sketches | None) -> History:
    if (entry := kin.entry) is None:
        return ()
    folder = root / entry.id
    _with_unit(folder, entry, owned)
    if entry.dealing != owned.dealing or _dealt_anew(kin, owned):
        return dealt_ledgers.most(folder, entry)
    slot = edge_slots.slot_of(folder, entry, owned, number, drawn)
    path = dealt_ledgers.ledger_of(folder, entry, slot)
    if not path.exists():
        return dealt_ledgers.before(folder, entry)
    owed = dealt_ledgers.owed(folder, entry, slot, edge_slots.mixed(folder, owned, slot, drawn))
    return (*dealt_ledgers.history(path), *owed)


def known(place: Path, digest: str, home: Path) -> str | None:
    """Return the name of the data at `place`, if a ledger knows its path or its bytes.

    A ledger of a path that contains it, or that it contains, counts too. Raises PrivacyError for a
    damaged register.
    """
    for path in sorted((home / "ledgers").glob("*/data.json")):
        entry = data_register.read(path)
        if digest in entry.digests or any(_overlap(place, name) for name in entry.names):
            return entry.names[0]
    return None


def called(name: str, home: Path) -> bool:
    """Return whether a ledger has this name. Raises PrivacyError for a damaged register."""
    paths = (home / "ledgers").glob("*/data.json")
    return any(name in data_register.read(path).names for path in paths)


def _overlap(place: Path, name: str) -> bool:
    """Return whether `name` is a path to `place`, or one of the two is in the other."""
    ours = place.resolve().parts
    theirs = Path(name).parts
    if not Path(name).is_absolute():  # its owner's name
        return False
    return all(
        re.fullmatch(re.escape(pattern).replace(_ANY_EDGE, "[0-9]+"), here) is not None
        for here, pattern in zip(ours, theirs, strict=False)  # as far as both go
    )


@contextmanager
def held(data: Iterable[Owned], home: Path) -> Iterator[list[LedgerOrigin]]:
    """Keep these data, those of edge 0, 1, …, for one run of this machine, while the context lasts.

    Yields how each was known before.

    Two runs at once may deal the same rows in two ways; then each edge would have a ledger in both.
    Names, bytes and units are registered before the next run can ask, so a copy is found, too.
    Raises PrivacyError where another run has one of them.
    """
    root = home / "ledgers"
    with ExitStack() as stack:
        names = {}
        origins = []
        begun = set()
        for number, owned in enumerate(data):
            drawn = _drawn(root, owned, number)
            with _durable(root), data_register.locked(root):
                kin = kinship.find(root, owned, drawn)
                entry = _adopted(root, owned, number, drawn)
            if kin.entry is None:
                begun.add(entry.id)
            origins.append(LedgerOrigin(None if entry.id in begun else entry.names[0], kin.by))
            names[owned.name] = owned
        with _durable(root), data_register.locked(root):  # one may have joined another meanwhile
            ours = {}
            for owned in names.values():
                if (match := kinship.find(root, owned, None).entry) is not None:
                    ours[match.id] = owned.name
            for identity, name in ours.items():
                _keep(stack, root / identity, name)
        yield origins


def _keep(stack: ExitStack, folder: Path, name: str) -> None:
    """Lock the folder of some data for a run, as long as `stack` lasts. Raises PrivacyError."""
    refusal = PrivacyError(
        f"data {name}: another run is training on it; wait for its end, or stop it"
    )
    stack.enter_context(file_lock.locked(folder / dealt_ledgers.RUN, refusal))


@contextmanager
def _durable(root: Path) -> Iterator[None]:
    """Raise PrivacyError where the folder of the ledgers cannot be read or written."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrivacyError(
            f"ledgers {root}: {error}; an edge needs a durable place for them"
        ) from error


def _drawn(root: Path, owned: Owned, number: int) -> Sketches | None:
    """Return the sketches of the data; None where its entry has them already, of these very bytes.

    The pass over the data is not made under the register's lock.
    """
    with _durable(root), data_register.locked(root):
        key = sketch_files.made_key(root)
        if _stored_sketches(root, owned, number) is not None:
            return None
    return sketch_files.drawn(owned, key)


def _stored_sketches(root: Path, owned: Owned, number: int) -> PartSketches | None:
    """Return the sketches that the data's entry has, where they are of these very bytes, too."""
    if (entry := kinship.find(root, owned, None).entry) is None:
        return None
    part = sketch_files.part_of(
        owned, edge_slots.slot_of(root / entry.id, entry, owned, number, None)
    )
    stored = sketch_files.read(root / entry.id, part)
    if stored is not None and sketch_files.name_of(owned) in stored.files:
        return stored
    return None


def _tells(sketches: Sketches | None) -> bool:
    return sketches is None or sketches.units is not None or sketches.rows.tells


def _adopted(root: Path, owned: Owned, number: int, drawn: Sketches | None) -> DataRecord:
    """Return the data's entry, which knows its name, bytes and units from now on."""
    kin = kinship.find(root, owned, drawn)
    entry = kin.entry or data_register.begun(owned)
    folder = root / entry.id
    entry = _with_unit(folder, entry, owned)
    entry = joining.unspent(root, entry, kin.joins)
    if _dealt_anew(kin, owned):
        entry = _redealt(folder, entry, owned)
    data_register.write(folder, entry := data_register.named(entry, owned))
    slot = edge_slots.slot_of(folder, entry, owned, number, drawn)
    if entry.dealing == owned.dealing:
        dealt_ledgers.raise_to(folder, entry, slot, edge_slots.mixed(folder, owned, slot, drawn))
    if drawn is not None:
        sketch_files.add(folder, sketch_files.part_of(owned, slot), owned, drawn)
    return entry


def _registered(root: Path, owned: Owned, number: int, drawn: Sketches | None) -> DataRecord:
    """Return the data's entry, dealt as this run deals it."""
    entry = _adopted(root, owned, number, drawn)
    folder = root / entry.id
    if entry.dealing != owned.dealing:
        entry = _redealt(folder, entry, owned)
    if not owned.dealing:
        slot = edge_slots.slot_of(folder, entry, owned, number, drawn)
        digests = entry.edges.get(slot, ())
        edges = entry.edges | {slot: data_register.added(digests, owned.digest)}
        entry = replace(entry, edges=edges)
    data_register.write(folder, entry)
    return entry


def _dealt_anew(kin: Kin, owned: Owned) -> bool:
    """Return whether edges may have other units than before, in a dealing of the same words.

    A row's edge depends on how it is encoded, and a site's file on its number; a person's does not.
    """
    return kin.by_units and not (owned.dealing and owned.unit != "row")


def _redealt(folder: Path, entry: DataRecord, owned: Owned) -> DataRecord:
    dealt_ledgers.refuse_in_use(folder, owned.name, dealt_ledgers.DEALT)
    number = entry.number + 1
    before = None
    if spent := dealt_ledgers.most(folder, entry):
        before = f"{number}/before.db"
        order = dealt_ledgers.order(dealt_ledgers.all_of(folder, entry))
        dealt_ledgers.begin(folder / before, entry.id, spent, order)
    return replace(entry, dealing=owned.dealing, number=number, before=before, edges={})


def _with_unit(folder: Path, entry: DataRecord, owned: Owned) -> DataRecord:
    if entry.unit != owned.unit and dealt_ledgers.spent(folder.parent, entry):
        if owned.name in entry.names:
            also = ""
        else:
            also = f" (it is known as {entry.names[0]})"
        raise PrivacyError(
            f"data {owned.name}{also}: its ledger counts by {entry.unit!r}, and data.unit says "
            f"{owned.unit!r}; what was charged for one unit says nothing of another"
        )
    return replace(entry, unit=owned.unit)
