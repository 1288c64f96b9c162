"""A store that also writes every accepted message to a journal file (journal_file.py).

The file follows the store and never leads it. A message is written to the file after the store has
accepted it, and before anybody is told so. If a crash comes in between, the message is still in the
store, which forgets nothing before the file is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tacit.config import RunFile
from tacit.errors import ConfigError, StoreLost
from tacit_services.journal.journal_file import Header, Writer
from tacit_services.journal.store.base import (
    Anchor,
    Appended,
    NewEntry,
    Saver,
    Snapshot,
    Stage,
    Store,
    StoredEntry,
    Verdict,
)

_BATCH = 256


class StoreWithJournalFile:
    """The store `inner`, with a journal file behind it, written by `writer`.

    A failure of the file is raised as one of the store is (ServiceError), so the driver waits in
    both cases.
    """

    def __init__(self, inner: Store, writer: Writer, run_id: str, run: RunFile) -> None:
        self._inner = inner
        self._writer = writer
        self._run_id = run_id
        self._run = run

    def open(self, fingerprint: str) -> int:
        """Open the store as base.Store.open does, then bring the file to where the store is.

        Raises StoreLost where the file has messages that the store does not know, ConfigError,
        too, where it lacks some that the store has forgotten.
        """
        # The store first: this fences another aggregator, which may have the file open.
        epoch = self._inner.open(fingerprint)
        try:
            self._catch_up()
        except (ConfigError, StoreLost):
            self._writer.close()
            raise
        return epoch

    def _catch_up(self) -> None:
        base = self._inner.snapshot() or Snapshot(0, b"")
        self._writer.open(Header(self._run_id, self._run, base))
        position = base.cursor
        while records := self._inner.read(position, _BATCH):
            self._writer.append((record.position, record.payload) for record in records)
            position = records[-1].position
        if self._writer.last > position:
            raise StoreLost(
                f"journal {self._writer.path}: has {self._writer.last - position} messages more "
                "than the store, which was emptied or has lost them. Put them back (tacit recover "
                f"--from {self._writer.path}), or begin anew under another TACIT_RUN_ID"
            )

    def append(self, entries: Sequence[NewEntry]) -> list[Appended]:
        """See base.Store.append."""
        return self.begin(entries)()

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        """See base.Store.begin; the file is written when the store has answered."""
        inner = self._inner.begin(entries)

        def answers() -> list[Appended]:
            appended = inner()
            paired = zip(entries, appended, strict=True)
            self._writer.append(
                (a.position, entry.payload) for entry, a in paired if a.verdict is Verdict.ACCEPTED
            )
            return appended

        return answers

    def stage(self) -> Stage | None:
        """See base.Store.stage."""
        return self._inner.stage()

    def read(self, after: int, limit: int) -> list[StoredEntry]:
        """See base.Store.read."""
        return self._inner.read(after, limit)

    def replay(self, after: int, page: int) -> Iterator[StoredEntry]:
        """See base.Store.replay."""
        return self._inner.replay(after, page)

    def save(self, snapshot: Snapshot) -> None:
        """See base.Store.save; the file is on disk before the store drops its entries."""
        _SaverBehindFile(self._inner, self._writer).save(snapshot)

    def saver(self) -> Saver:
        """See base.Store.saver."""
        return _SaverBehindFile(self._inner.saver(), self._writer)

    def snapshot(self) -> Snapshot | None:
        """See base.Store.snapshot."""
        return self._inner.snapshot()

    def depth(self) -> tuple[int, int]:
        """See base.Store.depth."""
        return self._inner.depth()

    def duplicates(self) -> int:
        """See base.Store.duplicates."""
        return self._inner.duplicates()

    def last_seqs(self) -> dict[str, int]:
        """See base.Store.last_seqs."""
        return self._inner.last_seqs()

    def empty(self, fingerprint: str) -> None:
        """See base.Store.empty. The file keeps what it has."""
        self._inner.empty(fingerprint)

    def anchors(self) -> dict[str, Anchor]:
        """See base.Store.anchors."""
        return self._inner.anchors()

    def close(self) -> None:
        """Close both. Idempotent."""
        self._inner.close()
        self._writer.close()


class _SaverBehindFile:
    """A saver that syncs the journal file before the store drops its entries."""

    def __init__(self, inner: Saver, writer: Writer) -> None:
        self._inner = inner
        self._writer = writer

    def save(self, snapshot: Snapshot) -> None:
        """See base.Store.save."""
        self._writer.sync(snapshot.cursor)
        self._inner.save(snapshot)

    def close(self) -> None:
        """Close the store's; the file stays open."""
        self._inner.close()
