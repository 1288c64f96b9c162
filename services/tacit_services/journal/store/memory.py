"""The store contract in plain Python, for tests and simulations. It ends with the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tacit_services.journal.store import append_rules
from tacit_services.journal.store.base import (
    Anchor,
    Appended,
    NewEntry,
    Saver,
    Snapshot,
    StoredEntry,
    Verdict,
)


@dataclass(slots=True)
class MemoryRun:
    """The stored state of one run."""

    fingerprint: str | None = None
    epoch: int = 0
    position: int = 0
    bytes: int = 0
    duplicates: int = 0
    journal: list[StoredEntry] = field(default_factory=list)
    last_seqs: dict[str, int] = field(default_factory=dict)
    snapshot: Snapshot | None = None
    # All runs share the anchors of the run without a name.
    anchors: dict[str, Anchor] = field(default_factory=dict)
    writing: threading.Lock = field(default_factory=threading.Lock)


class MemoryStore:
    """One run in memory.

    Stores that are given the same `shared` dict see, and fence, each other.
    """

    def __init__(
        self,
        run: str,
        limits: append_rules.JournalLimits,
        shared: dict[str, MemoryRun] | None = None,
    ) -> None:
        self._run = run
        self._limits = limits
        shared = {} if shared is None else shared
        self._data = shared.setdefault(run, MemoryRun())
        self._anchors = shared.setdefault("", MemoryRun()).anchors
        self._epoch = 0

    def open(self, fingerprint: str) -> int:
        """See base.Store.open."""
        self._refuse_others(fingerprint)
        self._data.fingerprint = fingerprint
        self._data.epoch += 1
        self._epoch = self._data.epoch
        return self._epoch

    def _refuse_others(self, fingerprint: str) -> None:
        stored = self._data.fingerprint
        if stored not in (None, fingerprint):
            raise append_rules.other_parameters(self._run, str(stored), fingerprint)

    def append(self, entries: Sequence[NewEntry]) -> list[Appended]:
        """See base.Store.append."""
        return self.begin(entries)()

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        """See base.Store.begin: there is nothing to wait for."""
        for entry in entries:
            append_rules.check_numbers(entry.edge, entry.seq, entry.anchor)
        if not entries:
            return list
        self._check_fence()
        with self._data.writing:
            answers = [self._append_one(entry) for entry in entries]
        return lambda: answers

    def stage(self) -> None:
        """See base.Store.stage: payloads are taken in whole."""

    def read(self, after: int, limit: int) -> list[StoredEntry]:
        """See base.Store.read."""
        dropped = self._data.position - len(self._data.journal)
        first = max(after - dropped, 0)
        return self._data.journal[first : first + max(limit, 0)]

    def replay(self, after: int, page: int) -> Iterator[StoredEntry]:
        """See base.Store.replay."""
        return append_rules.in_pages(self.read, after, page)

    def save(self, snapshot: Snapshot) -> None:
        """See base.Store.save."""
        self._check_fence()
        data = self._data
        append_rules.check_cursor(
            snapshot.cursor, data.snapshot.cursor if data.snapshot else 0, data.position
        )
        with data.writing:
            data.snapshot = Snapshot(snapshot.cursor, bytes(snapshot.state))
            data.journal = self.read(snapshot.cursor, len(data.journal))
            data.bytes = sum(len(record.payload) for record in data.journal)

    def saver(self) -> Saver:
        """See base.Store.saver."""
        return self

    def snapshot(self) -> Snapshot | None:
        """See base.Store.snapshot."""
        return self._data.snapshot

    def depth(self) -> tuple[int, int]:
        """See base.Store.depth."""
        return len(self._data.journal), self._data.bytes

    def duplicates(self) -> int:
        """See base.Store.duplicates."""
        return self._data.duplicates

    def last_seqs(self) -> dict[str, int]:
        """See base.Store.last_seqs."""
        return dict(self._data.last_seqs)

    def empty(self, fingerprint: str) -> None:
        """See base.Store.empty."""
        self._refuse_others(fingerprint)
        data = self._data
        with data.writing:
            data.epoch += 1
            data.position = 0
            data.bytes = 0
            data.snapshot = None
            data.journal = []
            data.last_seqs = {}

    def anchors(self) -> dict[str, Anchor]:
        """See base.Store.anchors."""
        return dict(self._anchors)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _check_fence(self) -> None:
        if self._epoch == 0 or self._epoch != self._data.epoch:
            raise append_rules.fenced(self._run, self._epoch)

    def _append_one(self, entry: NewEntry) -> Appended:
        data = self._data
        last = data.last_seqs.get(entry.edge, 0)
        verdict = append_rules.judge(last, entry.seq, self.depth(), self._limits)
        data.duplicates += verdict is Verdict.DUPLICATE
        if verdict is not Verdict.ACCEPTED:
            return Appended(verdict, 0, last)
        data.position += 1
        data.journal.append(StoredEntry(data.position, entry.edge, entry.seq, bytes(entry.payload)))
        data.bytes += len(entry.payload)
        data.last_seqs[entry.edge] = entry.seq
        anchor = entry.anchor
        if anchor and (
            anchor.lineage not in self._anchors
            or anchor.count > self._anchors[anchor.lineage].count
        ):
            self._anchors[anchor.lineage] = anchor
        return Appended(verdict, data.position, entry.seq)
