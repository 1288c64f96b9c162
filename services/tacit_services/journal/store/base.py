"""The store contract: a journal (FIFO of accepted messages), a snapshot, and the fence between aggregators.

The gradient buffer of the papers is this journal. Accept order is apply order; the model is a fold of it.
Three backends keep the same promises and pass the same test class (tests/integration/test_store.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Verdict(StrEnum):
    """What `append` did with one message."""

    ACCEPTED = "accepted"  # durable, at `position`
    DUPLICATE = "duplicate"  # seq <= the edge's last accepted seq; nothing written
    BUSY = "busy"  # the journal is full (count or bytes); nothing written


@dataclass(frozen=True, slots=True)
class Anchor:
    """How far the ledger of `lineage` (a dataset at an edge) has come: so many charges, this head of its hash chain."""

    lineage: str
    count: int
    head: bytes


@dataclass(frozen=True, slots=True)
class NewEntry:
    """One message to append: `payload` is the whole envelope as received, `anchor` where its sender's ledger stands."""

    edge: str
    seq: int
    payload: bytes
    anchor: Anchor | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer for one NewEntry.

    `position`: 1-based place in the run's accept order (0 unless accepted).
    `last_seq`: the edge's last accepted seq after this call (0: none yet).
    """

    verdict: Verdict
    position: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One journal entry read back; `checked`: found equal to what was appended, by a checksum that the store keeps."""

    position: int
    edge: str
    seq: int
    payload: bytes
    checked: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent cut: `state` is the fold of journal entries 1..cursor."""

    cursor: int
    state: bytes


class Store(Protocol):
    """One run's journal and snapshot, and the anchors of all runs. Single writer, fenced by epoch; not thread-safe.

    Every method raises `errors.ServiceError` when the backend cannot be reached or refuses (disk full), and
    every write raises `errors.Fenced` when a newer `open` has happened; then nothing was written.
    """

    def open(self, fingerprint: str, older: Sequence[str] = ()) -> int:
        """Take the run over and return the new fencing epoch (1 for the first).

        `fingerprint` is the SHA-256 of the run's parameters, `older` what earlier versions of tacit called the same
        run. A store keeps the name that a run began with. Raises `errors.ConfigError` when it holds this run with a
        fingerprint that is none of these, `errors.WireError` when it has not as many entries behind the snapshot
        as it accepted (nothing is changed then).
        """

    def append(self, entries: Sequence[NewEntry]) -> list[Appended]:
        """Append in order, all durable when this returns; one answer per entry.

        For each entry, with `last` the edge's last accepted seq (0: none): seq <= last is DUPLICATE; a journal that
        holds its limit of entries or bytes, or more, gives BUSY; else ACCEPTED. Numbers may skip (a refused message
        leaves a hole): an edge has one unreceipted message in flight, so a later one cannot overtake.
        Verdicts inside one call see the effects of the entries before them. An ACCEPTED entry's anchor is kept in the
        same step, if its count is larger than the one held for its lineage.
        Raises ValueError for a seq or an anchor's count outside 0..MAX_SEQ (rules.py), before anything is written.
        """

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        """As `append`, in two steps, so that the caller need not wait while the backend writes.

        What it returns is called once, before anything else is written, and gives or raises what `append` does; the
        entries may be durable earlier, also where it is never called.
        """

    def read(self, after: int, limit: int) -> list[StoredEntry]:
        """Journal entries with position > `after`, oldest first, at most `limit`.

        Raises `errors.WireError` for one that is seen not to be what was appended.
        """

    def replay(self, after: int, page: int) -> Iterator[StoredEntry]:
        """Every journal entry with position > `after`, oldest first, fetched `page` at a time. Raises like `read`."""

    def save(self, snapshot: Snapshot) -> None:
        """Store the snapshot and drop journal entries up to its cursor, in one atomic step.

        A snapshot older than the stored one (smaller cursor) is refused with ValueError.
        """

    def snapshot(self) -> Snapshot | None:
        """The last saved snapshot, or None for a fresh run."""

    def depth(self) -> tuple[int, int]:
        """(entries, bytes) now in the journal."""

    def last_seqs(self) -> dict[str, int]:
        """Last accepted seq of every edge ever accepted in this run."""

    def anchors(self) -> dict[str, Anchor]:
        """The furthest anchor of every lineage, over all runs ever in this place: a new run does not forget them."""

    def close(self) -> None:
        """Release the connection; idempotent."""
