"""Faults planted in the product, one at a time, each of which the schedules must find.

Each replaces one function of the product by one that is wrong in the way that its name says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tacit_services.aggregator.entries import Candidate
from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.aggregator.ingest.receipts import Receipts
from tacit_services.aggregator.pipeline import Pipeline
from tacit_services.aggregator.run_journal import RunJournal
from tacit_services.journal.journal_file import Header, Writer
from tacit_services.journal.store import Appended, append_rules
from tacit_services.worker import outbox
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.session import Session

from tacit.algorithms.base.server import ServerRole
from tacit.privacy.ledger import Ledger, SharedLedger, durable
from tacit.privacy.ledger.chain import Charge, LedgerRow
from tacit.privacy.ledger.durable import Charged
from tacit.privacy.ledger.file import read_end
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Halt

Plant = Callable[[], AbstractContextManager[None]]


@contextmanager
def _replaced(place: Any, name: str, wrong: Any) -> Iterator[None]:
    with patch.object(place, name, wrong):
        yield


def ledger_without_fsync() -> AbstractContextManager[None]:
    """Commit the ledger without waiting for the disk."""

    def wrong(db: Any) -> None:
        db.execute("PRAGMA journal_mode = PERSIST")
        db.execute("PRAGMA synchronous = OFF")

    return _replaced(durable, "keep_journal", wrong)


def acknowledge_before_append() -> AbstractContextManager[None]:
    """Send receipts before the store has the messages."""
    right = Pipeline._append

    def wrong(self: Pipeline, candidates: list[Candidate]) -> Any:
        for candidate in candidates:
            receipt = pb.Receipt(status=pb.Receipt.ACCEPTED, last_seq=candidate.seq)
            receipt = self._receipts.proven(candidate.edge, receipt)
            self._downlink.receipt(candidate.edge, candidate.seq, receipt)
        return right(self, candidates)

    return _replaced(Pipeline, "_append", wrong)


def number_used_again() -> AbstractContextManager[None]:
    """Keep the number of an edge's first message alone: a successor counts on from there."""
    wrong = outbox._KEEP_SENDER.replace("seq = excluded.seq, ", "")
    return _replaced(outbox, "_KEEP_SENDER", wrong)


def send_before_commit() -> AbstractContextManager[None]:
    """Store a message with the next one, after it was sent."""
    right = Outbox.put

    def wrong(self: Outbox, seq: int, envelope: Any, *more: Any) -> None:
        late = vars(self).setdefault("late", [])
        pieces = envelope if isinstance(envelope, bytes) else b"".join(envelope.pieces)
        if late:
            self._last -= 1
            right(self, *late.pop())
        late.append((seq, pieces, *more))
        self._pending[seq] = pieces
        self._last = seq

    return _replaced(Outbox, "put", wrong)


def halt_is_lost() -> AbstractContextManager[None]:
    """Halt the role, and leave the halt out of the journal."""
    right = RunJournal.enter

    def wrong(self: RunJournal, payload: bytes, message: Any) -> Any:
        if isinstance(message, Halt):
            return self.role.on_message(message)
        return right(self, payload, message)

    return _replaced(RunJournal, "enter", wrong)


def number_accepted_twice() -> AbstractContextManager[None]:
    """Take a message that comes again for a new one."""
    right = append_rules.judge

    def wrong(last: int, seq: int, depth: tuple[int, int], limits: Any) -> Any:
        return right(last - (seq == last), seq, depth, limits)

    return _replaced(append_rules, "judge", wrong)


def snapshot_of_an_earlier_place() -> AbstractContextManager[None]:
    """Say of a snapshot that it is of the entry before: that is folded twice."""
    right = RunJournal.begin_save

    def wrong(self: RunJournal) -> None:
        moved = self.cursor > self.saved + 1
        self.cursor -= moved
        right(self)
        self.cursor += moved

    return _replaced(RunJournal, "begin_save", wrong)


def replay_leaves_one_out() -> AbstractContextManager[None]:
    """Fold the journal after a restart without its first entry."""
    right = RunJournal._refold

    def wrong(self: RunJournal, record: Any) -> None:
        if record.position == self.saved + 1 > 1:
            self.cursor = record.position
            return
        right(self, record)

    return _replaced(RunJournal, "_refold", wrong)


def charge_is_not_written() -> AbstractContextManager[None]:
    """Store a message without the charge that goes with it, and count it as charged."""
    right = Ledger._write

    def wrong(self: Ledger, charge: Charge) -> Any:
        if self._rows > 1 or self._last is not None:
            file, rows, last = self._file, self._rows, self._last
            end = replace(file, count=file.count + charge.count)
            assert last is not None
            return end, rows, replace(last, count=last.count + charge.count)
        return right(self, charge)

    return _replaced(Ledger, "_write", wrong)


def busy_is_taken_for_final() -> AbstractContextManager[None]:
    """Forget a message whose receiver asks to wait."""
    right = Session._receipt

    def wrong(self: Session, seq: int, receipt: pb.Receipt) -> None:
        if receipt.status == pb.Receipt.BUSY:
            receipt = pb.Receipt(status=pb.Receipt.ACCEPTED, last_seq=0)
        right(self, seq, receipt)

    return _replaced(Session, "_receipt", wrong)


def retry_is_encoded_anew() -> AbstractContextManager[None]:
    """Write the newest receipt into a message that is sent again."""
    right = Outbox._read

    def wrong(self: Outbox) -> Any:
        pending = right(self)
        return {seq: bytes(content[:-1]) + b"\1" for seq, content in pending.items()}

    return _replaced(Outbox, "_read", wrong)


def parts_of_two_messages() -> AbstractContextManager[None]:
    """Put parts of an edge's messages together whatever their numbers are."""
    right = Reassembly.add

    def wrong(self: Reassembly, edge: str, seq: int, payload: Any) -> Any:
        if partial := self._open.get(edge):
            partial.seq = seq
        return right(self, edge, seq, payload)

    return _replaced(Reassembly, "add", wrong)


def last_numbers_are_forgotten() -> AbstractContextManager[None]:
    """Answer a message of before a restart as if nothing of its edge had been accepted."""
    right = RunJournal.fold

    def wrong(self: RunJournal, candidate: Candidate, answer: Appended) -> Any:
        receipt, outgoing = right(self, candidate, answer)
        if receipt.status == pb.Receipt.DUPLICATE:
            receipt = pb.Receipt(status=pb.Receipt.REJECTED, reason="order")
        return receipt, outgoing

    return _replaced(RunJournal, "fold", wrong)


def store_failure_is_a_receipt() -> AbstractContextManager[None]:
    """Tell the edges that messages were accepted whose append the store has not answered."""

    def wrong(self: Pipeline, candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            receipt = pb.Receipt(status=pb.Receipt.ACCEPTED, last_seq=candidate.seq)
            self._downlink.receipt(candidate.edge, candidate.seq, receipt)

    return _replaced(Pipeline, "_ask_to_wait", wrong)


def large_message_without_fsync() -> AbstractContextManager[None]:
    """Commit a large message before its file has reached the disk."""

    def wrong(self: Outbox, path: Path, pieces: Iterable[bytes | memoryview]) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(pieces))

    return _replaced(Outbox, "_write", wrong)


def journal_file_without_fsync() -> AbstractContextManager[None]:
    """Let the store forget what the journal file has not on the disk."""
    return _replaced(Writer, "sync", lambda self, upto: None)


def torn_record_stays() -> AbstractContextManager[None]:
    """Write behind a record that a crash has torn."""
    right = Writer._check

    def wrong(self: Writer, begin: Header) -> None:
        right(self, begin)
        self._end = self.path.stat().st_size

    return _replaced(Writer, "_check", wrong)


def lost_store_is_not_seen() -> AbstractContextManager[None]:
    """Believe a store whatever receipts the edges show."""
    return _replaced(Receipts, "check", lambda self, edge, receipt, last: None)


def restart_begins_anew() -> AbstractContextManager[None]:
    """Restore a snapshot's counts and leave its model out."""

    def wrong(self: ServerRole, tensors: Any, values: Any) -> None:
        return None

    return _replaced(ServerRole, "restore", wrong)


@contextmanager
def charge_over_anothers() -> Iterator[None]:
    """Charge a shared ledger from where this process left it, over what others have charged."""

    def wrong(self: SharedLedger, target: Charged) -> None:
        self._db.execute("UPDATE chain SET count = ?, head = ?", (target.count, target.head))

    with (
        _replaced(SharedLedger, "_catch_up", lambda self: None),
        _replaced(SharedLedger, "_move", wrong),
    ):
        yield


def release_before_anothers_charge() -> AbstractContextManager[None]:
    """Let a release begin, and charge it with the next one, where another run has charged since."""
    right = SharedLedger.charge

    def wrong(self: SharedLedger, *spent: Any, **more: Any) -> None:
        late = vars(self).setdefault("late", [])
        if Charged(*read_end(self._db, self._dataset)) != self._file and not late:
            late.append((spent, more))
            return
        if late:
            (owed, how) = late.pop()
            right(self, *owed, **how)
        right(self, *spent, **more)

    return _replaced(SharedLedger, "charge", wrong)


def charge_ahead_is_used_twice() -> AbstractContextManager[None]:
    """Let two releases begin with one charge that a shared ledger has ahead."""
    right = SharedLedger._begin

    def wrong(self: SharedLedger, entry: LedgerRow) -> None:
        parts = tuple(self._charged_ahead)
        right(self, entry)
        self._charged_ahead.extend(parts[:1])

    return _replaced(SharedLedger, "_begin", wrong)


def one_outbox_for_both_runs() -> AbstractContextManager[None]:
    """Keep the messages of an identity's runs under one name."""
    right = Outbox.__init__

    def wrong(self: Outbox, ledger: Ledger, run: str, *more: Any, **options: Any) -> None:
        right(self, ledger, "run" if ledger.shared else run, *more, **options)

    return _replaced(Outbox, "__init__", wrong)


def lifetime_counts_ones_own() -> AbstractContextManager[None]:
    """Ask a lifetime what one process has charged, and read nothing of what others have."""
    right = SharedLedger._catch_up

    def wrong(self: SharedLedger) -> None:
        known = self._known
        right(self)
        self._known = known

    return _replaced(SharedLedger, "_catch_up", wrong)


_ALL: Sequence[Plant] = (
    ledger_without_fsync,
    acknowledge_before_append,
    number_used_again,
    send_before_commit,
    halt_is_lost,
    number_accepted_twice,
    snapshot_of_an_earlier_place,
    replay_leaves_one_out,
    charge_is_not_written,
    busy_is_taken_for_final,
    retry_is_encoded_anew,
    parts_of_two_messages,
    last_numbers_are_forgotten,
    store_failure_is_a_receipt,
    restart_begins_anew,
    large_message_without_fsync,
    journal_file_without_fsync,
    torn_record_stays,
    lost_store_is_not_seen,
    charge_over_anothers,
    release_before_anothers_charge,
    charge_ahead_is_used_twice,
    one_outbox_for_both_runs,
    lifetime_counts_ones_own,
)
PLANTED: dict[str, Plant] = {plant.__name__: plant for plant in _ALL}
