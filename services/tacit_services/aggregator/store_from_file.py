"""Puts back into a store what it has lost, out of the journal file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tacit.config.definition import Definition
from tacit.errors import ConfigError
from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Hello, Retired, Update
from tacit_services.aggregator import entries
from tacit_services.aggregator.entries import OPERATOR
from tacit_services.aggregator.run_journal import RunJournal
from tacit_services.journal.journal_file import FileRecord, Header, Writer
from tacit_services.journal.store import Anchor, Snapshot, Store, StoredEntry

_BATCH = 64


def put_back(journal: RunJournal, records: Iterable[FileRecord], begins: int) -> int:
    """Append the records that the store lacks, fold them, and return how many.

    journal: not taken over yet. begins: the position after which the file begins. Raises
    ConfigError if the store holds another history, or begins before the file. Raises WireError.
    """
    journal.take_over()
    if journal.cursor < begins:
        raise ConfigError(
            f"journal: begins after message {begins}, but the store ends at {journal.cursor}; what "
            "lies between is in neither: begin anew under another TACIT_RUN_ID"
        )
    history = _History(journal, from_start=begins == 0)
    back = 0
    pending: list[StoredEntry] = []
    for record in records:
        entry = history.judged(record)
        if entry is not None:
            pending.append(entry)
        if len(pending) == _BATCH:
            back += _put(journal, pending)
    back += _put(journal, pending)
    if not back:
        history.check_numbers()
    journal.save()
    return back


def empty(store: Store, writer: Writer, definition: Definition[Any], header: Header) -> int:
    """Empty the store of the journal file's run. All can be put back afterwards.

    writer: of that file, not open yet. It stays open, so no aggregator can use the file meanwhile.
    Messages that the store alone has are written to the file first. Returns the number of messages
    in the store that were no part of the file's history, and are deleted now. Raises ServiceError
    if an aggregator has the file open. Raises ConfigError if messages that the store has forgotten
    are not in it.
    """
    if header.base.cursor:
        raise ConfigError(
            f"journal: begins after message {header.base.cursor}, so an emptied store could not be "
            "put back; nothing was emptied"
        )
    snapshot = store.snapshot() or Snapshot(0, b"")
    writer.open(Header(header.run, header.parameters, snapshot))
    stored = list(store.replay(snapshot.cursor, _BATCH))
    try:
        writer.append((entry.position, entry.payload) for entry in stored)
        others = 0
    except ConfigError:  # it is another history: nothing of it was written
        others = len(stored)
    writer.sync(writer.last)
    store.empty(definition.fingerprint)
    return others


class _History:
    """The history by the file, and by the store."""

    def __init__(self, journal: RunJournal, *, from_start: bool) -> None:
        """from_start: the file begins where the run does."""
        self._journal = journal
        self._upto = journal.cursor
        self._from_start = from_start
        self._operators = journal.last_seqs.get(OPERATOR, 0)
        self._stored = self._entries()
        self._numbers: dict[str, int] = {}  # the last of every edge, by the file

    def judged(self, record: FileRecord) -> StoredEntry | None:
        """Return the entry to append for this record; None: the store has it.

        Raises ConfigError.
        """
        meta = wire.decode(record.payload).meta
        if record.position == self._upto + 1:
            self.check_numbers()
        if record.position > self._upto:
            return StoredEntry(record.position, meta.edge, self._number(meta), record.payload)
        if meta.edge != OPERATOR:
            self._numbers[meta.edge] = meta.seq
        if record.position > self._journal.saved:
            stored = next(self._stored, None)
            if stored is None or stored.payload != record.payload:
                raise self._another(record.position)
        return None

    def check_numbers(self) -> None:
        """Raise ConfigError unless the store's last numbers are those of the file up to there."""
        stored = {edge: seq for edge, seq in self._journal.last_seqs.items() if edge != OPERATOR}
        if not self._from_start:
            stored = {edge: stored.get(edge, 0) for edge in self._numbers}
        if stored != self._numbers:
            raise self._another(self._upto)

    def _number(self, meta: pb.Meta) -> int:
        """Return a message's number; the operator's entries are counted, as the store does."""
        if meta.edge != OPERATOR:
            return meta.seq
        self._operators += 1
        return self._operators

    def _entries(self) -> Iterator[StoredEntry]:
        after = self._journal.saved
        while page := self._journal.store.read(after, _BATCH):
            yield from page
            after = page[-1].position

    def _another(self, position: int) -> ConfigError:
        return ConfigError(
            f"store: its message {position} of run {self._journal.run_id!r} is not the journal's: "
            "something has gone on with the run since; what it has accepted is in no model that "
            f"goes on from here. To give it up: tacit recover --empty {self._journal.run_id}"
        )


def _put(journal: RunJournal, pending: list[StoredEntry]) -> int:
    """Append what is pending, and empty the list."""
    size = len(pending)
    journal.put_back(pending, [_anchor(journal, entry) for entry in pending])
    pending.clear()
    return size


def _anchor(journal: RunJournal, entry: StoredEntry) -> Anchor | None:
    """Return where the sender's ledger stood."""
    message = entries.read(entry.payload, journal.schema, journal.size)
    if not isinstance(message, Hello | Update | Retired):
        return None
    lineage = f"{journal.role.dataset}/{entry.edge}"
    return Anchor(lineage, message.charged.count, message.charged.head)
