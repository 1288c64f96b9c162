"""The server side of a run over MQTT: accept → journal → fold → reply. One thread, one writer.

The order in `accept` is the promise: append durably, acknowledge to the broker, fold, and only then
tell the edge. Whoever dies in between, the edge sends the same bytes again and the journal knows
them.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set

from tacit.algorithms.base.server import ServerRole
from tacit.errors import Fenced, ServiceError, WireError
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import EVERYONE, Deadline, Halt, Outgoing, ServerOutput, Timer, Update
from tacit.protocol.messages import ServerInput as Message
from tacit.protocol.vertical import Request
from tacit_services.aggregator import entries
from tacit_services.aggregator.downlink import Downlink
from tacit_services.aggregator.entries import OPERATOR, Candidate
from tacit_services.aggregator.ingest.admission import Uplink
from tacit_services.aggregator.ingest.batching import BUSY, Intake, Lot, gather
from tacit_services.aggregator.ingest.rate_limit import Door
from tacit_services.aggregator.ingest.subscriptions import everybody, subscriptions
from tacit_services.aggregator.reporting.histogram import Histogram
from tacit_services.aggregator.reporting.run_state import run_state
from tacit_services.journal import snapshot_file as state_file
from tacit_services.journal.store import Appended, NewEntry, Snapshot, Store, StoredEntry, Verdict
from tacit_services.transport.mqtt import Connection, Inbound

log = logging.getLogger("tacit.driver")
PAGE_BYTES = 1 << 21  # of payload that a replay reads at once
ROUND_SECONDS = 0.2  # that one `accept` goes on taking what comes
SNAPSHOT_SECONDS = 30.0
FAREWELL_SECONDS = 5.0


class ServerDriver:
    """Runs one server role.

    `lock` is held while the fold changes, so that other threads may read it.
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
        max_message: int,
        chunk: int,
        older: Sequence[str] = (),
    ) -> None:
        self.run_id, self.role, self.schema, self.size = run_id, role, schema, size
        self.store, self.fingerprint, self.snapshot_every = store, fingerprint, snapshot_every
        self._older = older  # what earlier versions of tacit called this run
        self.down = Downlink(run_id, schema, chunk)
        self.inbox: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self.door: Door | None = None  # in front of the inbox, where [guard] has a rate
        self.lock = threading.Lock()
        self.counts = Counter[
            str
        ]()  # accepted (stale ones too), duplicate, busy, replayed, snapshots, rejected:{why}
        self.uplink = Uplink(role, self.down, self.counts, size, max_message)
        self.intake = Intake(self.uplink, store, self.counts)
        self.presence = self.uplink.presence
        self.cursor = self.saved = self.epoch = 0
        self.journal_bytes = 0  # of payload since the snapshot
        self.latency = Histogram()  # from taking a message in hand to having it in the model
        self.store_up = True
        self._full, self.saved_at = (
            False,
            time.monotonic(),
        )  # full: the journal has refused a message
        self._timer: tuple[Timer, float] | None = (
            None  # what the role waits for, and when it will have waited enough
        )
        self._heard: set[str] = set()  # edges with an accepted message since farewell() began

    # -- start and recovery ------------------------------------------------------------------------

    def recover(self) -> None:
        """Take the run over: snapshot, then the journal after it, to the same bits. Nothing is
        sent.

        May be called again: after a store failure, also one in the middle of this, it goes on from
        where it was. Raises Fenced when that is impossible, because the store is ahead of this
        process or behind it.
        """
        epoch = self.store.open(self.fingerprint, self._older)
        snapshot = self.store.snapshot()
        self._check_kept(0 if snapshot is None else snapshot.cursor)
        if snapshot is not None and not self.cursor:
            tensors, values = state_file.loads(snapshot.state)
            with self.lock:
                self.role.restore(tensors, values["role"])
            self.counts.update(values["counts"])
            self.cursor = self.saved = snapshot.cursor
        self._replay()
        folded = {name: record.charged for name, record in self.role.edges.items()}
        self.uplink.load(self.store.anchors().values(), self.store.last_seqs(), folded)
        self.down.gate.resume()
        self.epoch = epoch  # last: REST answers from here on

    def _check_kept(self, held: int) -> None:
        if self.cursor and held > self.cursor:
            raise Fenced(
                f"store: another aggregator has gone on with run {self.run_id!r} to {held}; "
                f"stopping"
            )
        if held < self.saved or (self.cursor > held and not self.store.read(self.cursor - 1, 1)):
            raise Fenced(
                f"store: run {self.run_id!r} has lost accepted messages (emptied, or an older "
                f"copy), this process has "
                f"applied {self.cursor}; stopping without writing. A restart goes on from what "
                f"the store still has"
            )

    def _replay(self) -> None:
        """Fold what the journal has behind the cursor."""
        for record in self.store.replay(
            self.cursor, max(1, min(256, PAGE_BYTES // (4 * self.size)))
        ):
            self._refold(record)

    def _refold(self, record: StoredEntry) -> None:
        """Raises WireError where the journal is not what this aggregator, or an older one, has
        accepted.
        """
        try:
            if record.position != self.cursor + 1:
                raise ValueError(f"comes after {self.cursor}")
            self._fold(entries.read(record.payload, self.schema, self.size, checked=record.checked))
        except (WireError, LookupError, ValueError, TypeError) as error:
            said = (
                error
                if isinstance(error, WireError | ValueError)
                else f"the fold cannot take it: {error!r}"
            )
            raise WireError(
                "journal", f"run {self.run_id!r}: entry {record.position}: {said}"
            ) from error
        self.cursor = record.position
        self.journal_bytes += len(record.payload)
        self.counts["replayed"] += 1

    def _fold(self, message: Message) -> list[Outgoing]:
        with self.lock:
            return self.role.on_message(message)

    # -- the loop ----------------------------------------------------------------------------------

    def hear(self, inbound: Inbound) -> None:
        """A message from the broker, on the network thread."""
        if self.door is None or self.door.admits(inbound):
            self.inbox.put(inbound)

    def run(self, connection: Connection, stop: threading.Event, idle: Callable[[], None]) -> None:
        """Serve until the role has halted or `stop` is set;

        `idle` is called at least every 0.25 s.
        """
        self._serve(connection, stop, idle, lambda: bool(self.role.halted))

    def linger(
        self, connection: Connection, stop: threading.Event, idle: Callable[[], None]
    ) -> None:
        """Go on serving after the end, until `stop` is set:

        a vertical role still answers questions.
        """
        self._serve(connection, stop, idle, lambda: False)

    def _serve(
        self,
        connection: Connection,
        stop: threading.Event,
        idle: Callable[[], None],
        over: Callable[[], bool],
    ) -> None:
        self.down.connection = connection
        self.announce()
        while not stop.is_set() and not over():
            batch = gather(self.inbox)
            try:
                self.accept(batch)
                self._let_in()
                self._keep_time()
                self._snapshot_if_due()
                connection.listen(self.subscriptions())
                idle()
            except Fenced:
                raise
            except ServiceError as error:
                self._ride_out(error, stop)
        self._last_save(stop)

    def _last_save(self, stop: threading.Event) -> None:
        while True:
            try:
                return self.save()
            except Fenced:
                raise
            except ServiceError as error:
                if stop.is_set():  # nothing is lost: the journal has what the snapshot has not
                    raise
                self._ride_out(error, stop)

    def subscriptions(self) -> list[str]:
        """What to listen to now; for the driver's thread."""
        flooding = frozenset[str]() if self.door is None else self.door.shut()
        return subscriptions(self.run_id, self.role.edges.keys() | self.presence.keys(), flooding)

    def accept(self, batch: Iterable[Inbound]) -> None:
        """Hop 6 of the design: authenticate, decode, validate; one atomic append; PUBACK; fold;
        receipt.

        While the store writes, what has come meanwhile is judged; its append begins before this
        one's is folded.
        """
        until = time.monotonic() + ROUND_SECONDS
        coming = self.intake.begin(self.intake.judge(batch))
        while coming.candidates:
            lot = coming
            coming = self.intake.judge(
                gather(self.inbox, 0.0) if self._may_go_on(lot, until) else []
            )
            try:
                answers = lot.answers()
            except ServiceError:
                self.intake.put_off(lot, coming)
                raise
            try:
                self.intake.begin(coming)
            finally:
                self._finish(lot, answers)

    def _may_go_on(self, lot: Lot, until: float) -> bool:
        """Whether more may be judged before `lot` is folded:

        not what a full journal, or the run's end, refuses.
        """
        ends = self.role.version + len(lot.candidates) >= self.role.horizon
        return time.monotonic() < until and not ends and not self._full

    def _finish(self, lot: Lot, answers: list[Appended]) -> None:
        replies: dict[str, Outgoing] = {}
        receipts: dict[str, tuple[int, pb.Receipt]] = {}  # of each edge's latest message
        for candidate, answer in zip(lot.candidates, answers, strict=True):
            candidate.inbound.done()
            receipt, outgoing = self._settle(candidate, answer)
            if answer.verdict == Verdict.ACCEPTED:
                self.latency.observe(time.perf_counter() - lot.began)
            if earlier := receipts.pop(candidate.edge, None):
                self.down.receipt(candidate.edge, *earlier)
            receipts[candidate.edge] = (candidate.seq, receipt)
            # An edge wants only the newest model. The end is said by farewell(), after the last
            # snapshot.
            replies |= {out.to: out for out in outgoing if out.to != EVERYONE}
        for edge, last in receipts.items():
            if edge not in replies:
                self.down.receipt(edge, *last)
        for edge, out in replies.items():
            self.reply(out, *receipts.get(edge, (0, None)))  # receipt and model in one message
        self._let_in()

    def _let_in(self) -> None:
        """Give a task to those that waited for others, and no longer have to."""
        for out in (out for edge in self.down.gate.due() for out in self.role.answer(edge)):
            self.reply(out)

    def _settle(self, candidate: Candidate, answer: Appended) -> tuple[pb.Receipt, list[Outgoing]]:
        self.counts[answer.verdict] += 1
        edge, seq = candidate.edge, candidate.seq
        self.uplink.last[edge] = answer.last_seq
        if answer.verdict == Verdict.ACCEPTED:
            self._heard.add(edge)
            before, over = self.role.stale, self.role.halted
            outgoing = self._fold(candidate.message)
            self.down.gate.heard(candidate.message)
            self.cursor = answer.position
            self.journal_bytes += len(candidate.payload)
            log.debug("accepted", extra={"edge": edge, "seq": seq, "version": self.role.version})
            # One that is stale, or came after the last in the same batch, is in the journal but not
            # in the model.
            left_out = isinstance(candidate.message, Update) and bool(
                over or self.role.stale > before
            )
            status = pb.Receipt.STALE if left_out else pb.Receipt.ACCEPTED
            return pb.Receipt(status=status, last_seq=answer.last_seq), outgoing
        if answer.verdict == Verdict.DUPLICATE:
            return self.uplink.passed(edge, seq)
        self._full = True
        return BUSY, []

    # -- downlink ----------------------------------------------------------------------------------

    def reply(self, outgoing: Outgoing, seq: int = 0, receipt: pb.Receipt | None = None) -> None:
        """Hop 8: a role's message to its edge, or to all;

        the receipt of its message `seq` goes with it.
        """
        message = outgoing.message
        assert isinstance(message, ServerOutput)
        for edge in list(self.role.edges) if outgoing.to == EVERYONE else [outgoing.to]:
            self.down.send(edge, message, seq, receipt)
        if outgoing.to == EVERYONE:
            self.announce()

    def announce(self) -> None:
        """Say, retained, how the run stands:

        at start, after a reconnection, with every snapshot, at the end.
        """
        self.down.announce(self.epoch, self.state, self.role.global_model())

    @property
    def quarantined(self) -> Set[str]:
        """Edges that the guard hears no more."""
        return self.uplink.guard.quarantined if self.uplink.guard is not None else frozenset()

    @property
    def state(self) -> str:
        """waiting (for a first update), training, finished (T reached) or halted."""
        return run_state(self.role)

    def farewell(self, stop: threading.Event) -> None:
        """Tell every edge that the run is over, and hear (for FAREWELL_SECONDS) its last account of
        what it has spent: a push that was under way when the run ended is not in the model, but it
        was released and it counts.
        """
        self._heard.clear()
        assert self.down.connection is not None  # as run() was before
        self.down.connection.listen(
            everybody(self.run_id)
        )  # last accounts are taken from whoever was shut out, too
        self.reply(Outgoing(EVERYONE, Halt(self.role.version, self.role.halted)))
        deadline = time.monotonic() + FAREWELL_SECONDS
        while time.monotonic() < deadline and not stop.is_set():
            there = {
                edge for edge, state in self.presence.items() if state in ("online", "refusing")
            }
            if self._heard.issuperset(there.intersection(self.role.edges)):
                break
            self.accept(gather(self.inbox))
        self.save()

    # -- control and persistence -------------------------------------------------------------------

    def halt(self, reason: str) -> None:
        """End the run: a journal entry like any other, so that a replay ends at the same place.

        Driver thread only.
        """
        self._say(
            entries.halt(self.run_id, self.role.version, reason), Halt(self.role.version, reason)
        )

    def ask(self, request: Request) -> bool:
        """A vertical run's parties for embeddings, after the end; False:

        the journal is full for now. Driver thread.
        """
        outgoing = self._say(entries.request(self.run_id, request), request)
        for out in outgoing or ():
            self.reply(out)
        return outgoing is not None

    def _keep_time(self) -> None:
        """Start the role's timer, or tell it, through the journal, that it has run out."""
        timer, now = None if self.role.halted else self.role.timer(), time.monotonic()
        if timer is None:
            self._timer = None
        elif self._timer is None or self._timer[0] != timer:
            self._timer = (timer, now + timer.seconds)
        elif now >= self._timer[1]:
            self._timer = None
            for out in (
                self._say(entries.deadline(self.run_id, timer.number), Deadline(timer.number)) or ()
            ):
                if out.to != EVERYONE:
                    self.reply(out)

    def _say(self, payload: bytes, message: Halt | Deadline | Request) -> list[Outgoing] | None:
        seq = self.store.last_seqs().get(OPERATOR, 0) + 1
        (answer,) = self.store.append([NewEntry(OPERATOR, seq, payload)])
        if answer.verdict != Verdict.ACCEPTED:
            self._full = True
            return None
        self.cursor = answer.position
        return self._fold(message)

    def save(self) -> None:
        """Snapshot the fold and trim the journal behind it."""
        if self.cursor == self.saved:
            return
        tensors, role = self.role.state()
        self.store.save(
            Snapshot(
                self.cursor, state_file.dumps(tensors, {"role": role, "counts": dict(self.counts)})
            )
        )
        self.saved, self.saved_at, self.journal_bytes = self.cursor, time.monotonic(), 0
        self.counts["snapshots"] += 1
        self.announce()

    def _snapshot_if_due(self) -> None:
        now = time.monotonic()
        due = (
            self.cursor - self.saved >= self.snapshot_every
            or now - self.saved_at > SNAPSHOT_SECONDS
        )
        if due or self._full:
            self.save()
            self.saved_at, self._full = now, False
        self.uplink.partials.expire()

    def _ride_out(self, error: ServiceError, stop: threading.Event) -> None:
        """The store failed:

        wait for it, take it over again, and fold what it kept although it did not answer.
        """
        log.warning("store lost: %s; edges are told to wait", error)
        self.store_up = False
        delay = 0.2
        while not stop.wait(delay):
            delay = min(delay * 2, 5.0)
            try:
                self.recover()
            except Fenced:
                raise
            except ServiceError:
                continue
            log.info("store back")
            self.store_up = True
            self.announce()
            return
