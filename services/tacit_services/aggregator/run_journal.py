"""A run as its store has it: the server role, folded up to a position, and how to continue."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tacit.algorithms.base.server import ServerRole
from tacit.errors import Fenced, ServiceError, StoreLost, WireError
from tacit.privacy.ledger import Charged
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Deadline, Halt, LiftQuarantine, Outgoing, Update
from tacit.protocol.vertical import Request
from tacit_services.aggregator import entries
from tacit_services.aggregator.entries import OPERATOR, Candidate
from tacit_services.aggregator.snapshots import Saving, draft
from tacit_services.journal import snapshot_file
from tacit_services.journal.store import (
    Anchor,
    Appended,
    NewEntry,
    Saver,
    Store,
    StoredEntry,
    Verdict,
)

PAGE_BYTES = 1 << 21  # of payload that a replay reads at once
SNAPSHOT_SECONDS = 30.0
BUSY = pb.Receipt(status=pb.Receipt.BUSY, retry_after_s=1.0)


class RunJournal:
    """Every change of the role goes through here, in the journal's order.

    For the driver's thread. `lock` is held while the role changes, so that other threads may read
    it.
    """

    def __init__(
        self,
        run_id: str,
        role: ServerRole,
        schema: bytes,
        size: int,
        store: Store,
        *,
        fingerprint: str,
        snapshot_every: int,
        clock: Callable[[], float] = time.monotonic,
        saving: Saving | None = None,
    ) -> None:
        """saving: stores the snapshots; None: in a thread."""
        self.run_id = run_id
        self.role = role
        self.schema = schema
        self.size = size
        self.store = store
        self.fingerprint = fingerprint
        self._snapshot_every = snapshot_every
        self._clock = clock
        self.lock = threading.Lock()
        # accepted (stale ones too), duplicate, busy, replayed, snapshots, rejected:{why}
        self.counts = Counter[str]()
        self.last_seqs: dict[str, int] = {}  # each edge's last accepted number
        self.cursor = self.saved = 0  # positions: of the role, and of the snapshot
        self.held_bytes = 0  # of payload since the snapshot
        self.saved_at = self._clock()
        self._saving = Saving() if saving is None else saving
        self._saver: Saver | None = None
        self._drafted = (0, 0)  # the cursor of the snapshot under way, and bytes up to it
        self.full = False  # whether a message was refused since it was last trimmed

    # -- taking over -------------------------------------------------------------------------------

    def take_over(self) -> int:
        """Open the store, and fold snapshot and journal to the same bits. Returns the epoch.

        May be called again: after a store failure, also one in the middle of this, it goes on from
        where it was. Raises Fenced where the store is ahead of this process, StoreLost where it is
        behind it.
        """
        self._abandon_saving()
        epoch = self.store.open(self.fingerprint)
        snapshot = self.store.snapshot()
        self._check_kept(0 if snapshot is None else snapshot.cursor)
        if snapshot is not None and not self.cursor:
            tensors, values = snapshot_file.loads(bytes(snapshot.state))
            with self.lock:
                self.role.restore(tensors, values["role"])
            self.counts.update(values["counts"])
            self.cursor = self.saved = snapshot.cursor
        for record in self.store.replay(
            self.cursor, max(1, min(256, PAGE_BYTES // (4 * self.size)))
        ):
            self._refold(record)
        self.last_seqs = dict(self.store.last_seqs())
        self.counts[Verdict.DUPLICATE] = self.store.duplicates()
        return epoch

    def _check_kept(self, stored: int) -> None:
        if self.cursor and stored > self.cursor:
            raise Fenced(
                f"store: another aggregator has gone on with run {self.run_id!r} to {stored}; "
                f"stopping"
            )
        if stored < self.saved or (
            self.cursor > stored and not self.store.read(self.cursor - 1, 1)
        ):
            raise StoreLost(
                f"store: run {self.run_id!r} has lost accepted messages (emptied, or an older "
                f"copy), this process has applied {self.cursor}; stopping without writing. Put "
                "them back (tacit recover --from JOURNAL), or begin anew under another TACIT_RUN_ID"
            )

    def _refold(self, record: StoredEntry) -> None:
        """Fold an entry of the journal again.

        Raises WireError where it is not what this aggregator, or an older one, has accepted.
        """
        try:
            if record.position != self.cursor + 1:
                raise ValueError(f"comes after {self.cursor}")
            message = entries.read(record.payload, self.schema, self.size, checked=record.checked)
            with self.lock:
                self.role.on_message(message)
        except (WireError, LookupError, ValueError, TypeError) as error:
            problem = (
                error
                if isinstance(error, WireError | ValueError)
                else f"the fold cannot take it: {error!r}"
            )
            raise WireError(
                "journal", f"run {self.run_id!r}: entry {record.position}: {problem}"
            ) from error
        self.cursor = record.position
        self.held_bytes += len(record.payload)
        self.counts["replayed"] += 1

    def put_back(self, records: Sequence[StoredEntry], anchors: Sequence[Anchor | None]) -> None:
        """Append and fold what the store has lost, with where the senders' ledgers stood.

        Raises WireError where the store takes one at another place, ServiceError.
        """
        paired = zip(records, anchors, strict=True)
        answers = self.store.append([NewEntry(r.edge, r.seq, r.payload, a) for r, a in paired])
        for record, answer in zip(records, answers, strict=True):
            if answer.position != record.position:
                place = f"{answer.verdict.value} at {answer.position}"
                raise WireError("journal", f"entry {record.position} was put back: {place}")
            self._refold(record)
        if self.save_due():
            self.save()

    def ledgers(self) -> tuple[list[Anchor], dict[str, Charged]]:
        """Return where the edges' ledgers were last seen.

        The list is of any run, as the store keeps it; the dictionary is what this run's fold knows,
        by edge.
        """
        folded = {name: record.charged for name, record in self.role.edges.items()}
        return list(self.store.anchors().values()), folded

    # -- what comes after --------------------------------------------------------------------------

    def begin(self, candidates: Iterable[Candidate]) -> Callable[[], list[Appended]]:
        """Begin to append in one atomic step; the result waits for the store's answers.

        Both raise ServiceError.
        """
        return self.store.begin(
            [NewEntry(c.edge, c.seq, c.payload, c.anchor, c.stage) for c in candidates]
        )

    def fold(self, candidate: Candidate, answer: Appended) -> tuple[pb.Receipt, list[Outgoing]]:
        """Fold one message, if the store has accepted it.

        Returns the answer to its sender: the receipt, and the role's messages.
        """
        role = self.role
        last = answer.last_seq
        self.last_seqs[candidate.edge] = last
        passed_over = role.stale + role.kept_out
        over = role.halted
        accepted = answer.verdict == Verdict.ACCEPTED
        if accepted:
            message = candidate.settled()
        else:
            message = candidate.message
        with self.lock:  # whoever reads the counts has those of one moment
            self.counts[answer.verdict] += 1
            if accepted:
                outgoing = role.on_message(message)
            else:
                outgoing = []
        if answer.verdict == Verdict.BUSY:
            self.full = True
            return BUSY, []
        if answer.verdict == Verdict.DUPLICATE:
            return pb.Receipt(status=pb.Receipt.DUPLICATE, last_seq=last), []
        self.cursor = answer.position
        self.held_bytes += len(candidate.payload)
        # One that is stale, or the guard's sums keep out, or came after the last in the same batch,
        # is in the journal but not in the model.
        more = role.stale + role.kept_out > passed_over
        left_out = isinstance(candidate.message, Update) and (over or more)
        if left_out:
            status = pb.Receipt.STALE
        else:
            status = pb.Receipt.ACCEPTED
        return pb.Receipt(status=status, last_seq=last), outgoing

    def enter(
        self, payload: bytes, message: Halt | Deadline | LiftQuarantine | Request
    ) -> list[Outgoing] | None:
        """Append and fold an entry that no edge sends; None: the journal is full for now.

        Raises ServiceError.
        """
        seq = self.last_seqs.get(OPERATOR, 0) + 1
        (answer,) = self.store.append([NewEntry(OPERATOR, seq, payload)])
        if answer.verdict != Verdict.ACCEPTED:
            self.full = True
            return None
        self.cursor, self.last_seqs[OPERATOR] = answer.position, answer.last_seq
        with self.lock:
            return self.role.on_message(message)

    def save_due(self) -> bool:
        """Return whether it is time for a snapshot."""
        many = self.cursor - self.saved >= self._snapshot_every
        return many or self.full or self._clock() - self.saved_at > SNAPSHOT_SECONDS

    def begin_save(self) -> None:
        """Begin a snapshot of the fold as it is now, unless one is under way or nothing is new."""
        if self._saving.busy:
            return
        if self.cursor != self.saved:
            tensors, role = self.role.state()
            more = {"counts": dict(self.counts)}
            self._drafted = self.cursor, self.held_bytes
            self._saver = self._saver or self.store.saver()
            self._saving.begin(self._saver, self.cursor, draft(tensors, role, more))
        self.saved_at = self._clock()
        self.full = False

    def saved_more(self, *, wait: bool = False) -> bool:
        """Return whether a snapshot has been stored since the last call, and the journal trimmed.

        wait: for the one under way. Raises Fenced, ServiceError.
        """
        if not self._saving.ended(wait=wait):
            return False
        self.saved, size = self._drafted
        self.held_bytes -= size
        self.counts["snapshots"] += 1
        return True

    def save(self) -> bool:
        """Snapshot the fold and trim the journal behind it; False: nothing is new.

        Raises Fenced, ServiceError.
        """
        earlier = self.saved_more(wait=True)
        self.begin_save()
        return self.saved_more(wait=True) or earlier

    def close(self) -> None:
        """End the thread that saves; idempotent. What is under way is waited for."""
        self._abandon_saving()
        self._saving.close()

    def _abandon_saving(self) -> None:
        """Wait for the snapshot under way; the store knows whether it was stored."""
        with contextlib.suppress(ServiceError):
            self.saved_more(wait=True)
        if self._saver is not None:
            self._saver.close()
            self._saver = None
