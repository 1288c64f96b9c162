"""The contract of a store: a run's journal, its snapshot, and the fence between aggregators.

The journal is the gradient buffer of the papers: a FIFO of accepted messages. First come the values
of the contract (`Verdict`, `Anchor`, `NewEntry`, `Appended`, `StoredEntry`, `Snapshot`), then
`Store` itself. The backends beside this file keep the same promises and pass the same tests.

Guarantee: an append is durable when it is answered, takes each number of an edge once, and fails
under an old epoch. The order of acceptance is the order of application, so the model is a fold of
the journal.

>>> from tacit_services.journal.store import open_store
>>> store = open_store("memory://", "demo")
>>> store.open(fingerprint="a run file's SHA-256")  # the epoch; an older one may not write any more
1
>>> message = NewEntry("edge-0", seq=1, payload=b"an envelope")
>>> [answer.verdict.value for _ in range(2) for answer in store.append([message])]
['accepted', 'duplicate']
>>> [(entry.position, entry.payload) for entry in store.replay(after=0, page=10)]
[(1, b'an envelope')]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Verdict(StrEnum):
    """The outcome of `append` for one entry."""

    ACCEPTED = "accepted"  # durable, at `position`
    DUPLICATE = "duplicate"  # seq <= the edge's last accepted seq; counted, and not written
    BUSY = "busy"  # the journal is full (count or bytes); nothing written


@dataclass(frozen=True, slots=True)
class Anchor:
    """The state of the ledger of `lineage`: `count` charges, hash chain at `head`.

    A lineage is the ledger of one dataset at one edge.
    """

    lineage: str
    count: int
    head: bytes


class Stage(Protocol):
    """A place in a store for a large payload that is still on its way.

    The store may take in what has come, and nobody can read it there: it counts from when its
    entry is appended. What is left by a process that dies is deleted at the next `open`.
    """

    def grow(self, begun: memoryview) -> None:
        """Take in the payload as far as it has come; nobody may write into that any more.

        Raises nothing: what does not arrive goes with the append.
        """

    def drop(self) -> None:
        """Delete what was taken in, as no entry follows."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """One message to append to the journal.

    `payload` is the whole envelope as received, which its owner may write into once the append has
    been answered; `anchor` is where its sender's ledger stands. `stage`: where its beginning is
    already.
    """

    edge: str
    seq: int
    payload: bytes | memoryview
    anchor: Anchor | None = None
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer for one NewEntry.

    `position` is its place in the run's accept order, from 1 (0 unless accepted). `last_seq` is the
    edge's last accepted seq after this call (0: none yet).
    """

    verdict: Verdict
    position: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One journal entry, read back.

    `checked`: the store keeps checksums of payloads, and this one was right.
    """

    position: int
    edge: str
    seq: int
    payload: bytes
    checked: bool = field(default=False, compare=False)


class Pieces:
    """Bytes that lie in several places, none of which may be written into; bytes(…) is a copy."""

    def __init__(self, *parts: bytes | memoryview) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return iter(self._parts)

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent cut: `state` is the fold of the journal entries 1 to `cursor`.

    One that was read back has bytes.
    """

    cursor: int
    state: bytes | Pieces


class Saver(Protocol):
    """A writer of snapshots of one run, under the epoch of the store that made it."""

    def save(self, snapshot: Snapshot) -> None:
        """Save a snapshot as Store.save does."""

    def close(self) -> None:
        """Release the connection. Idempotent."""


class Store(Protocol):
    """One run's journal and snapshot, and the anchors of all runs in the same place.

    There is a single writer, fenced by an epoch: an `open` makes every earlier writer's epoch
    invalid. A store is not thread-safe, but its `saver` is for another thread. Every method raises
    `errors.ServiceError` when the backend cannot be reached or refuses (as when a disk is full).
    Every write raises `errors.Fenced` after a newer `open`; then nothing was written.
    """

    def open(self, fingerprint: str) -> int:
        """Take the run over and return the new fencing epoch, 1 for the first.

        `fingerprint` is the SHA-256 of the run's parameters. Raises `errors.ConfigError` if the
        store holds this run with another fingerprint, or in another format. Raises
        `errors.WireError` if entries that it accepted are missing behind the snapshot. Then nothing
        is changed.
        """

    def append(self, entries: Sequence[NewEntry]) -> list[Appended]:
        """Append entries in order, all durable when this returns; one answer for each.

        Let `last` be the edge's last accepted seq (0: none). An entry with seq <= last is
        DUPLICATE. A journal that holds its limit of entries or bytes, or more, gives BUSY. Every
        other entry is ACCEPTED. A DUPLICATE is counted in the same step (`duplicates`). Numbers may
        skip, as a refused message leaves a hole: an edge has one unreceipted message in flight, so
        a later one cannot overtake. Verdicts inside one call see the effects of the entries before
        them. An ACCEPTED entry's anchor is kept in the same step, if its count is larger than the
        one held for its lineage.

        Raises ValueError for a seq or an anchor's count outside 0..MAX_SEQ (append_rules.py),
        before anything is written.
        """

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        """Start an append, and return a call that finishes it, so that the caller need not wait.

        The returned call is made once, before anything else is written, and gives or raises what
        `append` does. The entries may be durable earlier, and also where the call is never made.
        Stages may grow meanwhile.
        """

    def stage(self) -> Stage | None:
        """Return a place for a large payload that comes in parts; None: taken in whole only."""

    def read(self, after: int, limit: int) -> list[StoredEntry]:
        """Return the journal entries with position > `after`, oldest first, at most `limit`.

        Raises `errors.WireError` for an entry that is seen not to be what was appended.
        """

    def replay(self, after: int, page: int) -> Iterator[StoredEntry]:
        """Yield every entry with position > `after`, oldest first, fetched `page` at a time.

        Raises what `read` does.
        """

    def save(self, snapshot: Snapshot) -> None:
        """Store the snapshot and drop the journal entries up to its cursor, in one atomic step.

        Raises ValueError for a snapshot that is older than the stored one (a smaller cursor).
        """

    def saver(self) -> Saver:
        """Return what saves under this store's present epoch, for one other thread."""

    def snapshot(self) -> Snapshot | None:
        """Return the last saved snapshot, or None for a fresh run."""

    def depth(self) -> tuple[int, int]:
        """Return how many entries, and bytes of payload, the journal holds now."""

    def duplicates(self) -> int:
        """Return how many entries of this run `append` has ever answered with DUPLICATE."""

    def last_seqs(self) -> dict[str, int]:
        """Return the last accepted seq of every edge that was ever accepted in this run."""

    def empty(self, fingerprint: str) -> None:
        """Forget the run's journal, snapshot and last numbers, in every state of them.

        Its parameters, its count of duplicates and the anchors stay, and the epoch goes on: every
        writer of before is fenced. Raises `errors.ConfigError` as `open` does. Then nothing is
        changed.
        """

    def anchors(self) -> dict[str, Anchor]:
        """Return the furthest anchor of every lineage, over all runs ever in this place."""

    def close(self) -> None:
        """Release the connection. Idempotent."""
