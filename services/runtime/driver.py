"""The server side of a run over MQTT: accept → journal → fold → reply. One thread, one writer.

The order in `accept` is the promise: append durably, acknowledge to the broker, fold, and only then tell the edge.
Whoever dies in between, the edge sends the same bytes again and the journal knows them.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from services.runtime import state as state_file
from services.runtime.mqtt import Connection, Inbound
from services.runtime.partials import Crowded, Partials
from services.runtime.store import Appended, Entry, Snapshot, Store, Verdict
from tacit import topics, wire
from tacit._pb import wire_pb2 as pb
from tacit.algorithms.mapa import Server
from tacit.errors import Fenced, ServiceError, WireError
from tacit.messages import EVERYONE, GlobalModel, Halt, Hello, Outgoing, Retired, Update

log = logging.getLogger("tacit.driver")
BATCH = 64  # messages that share one append; more arrive while it is being written
OPERATOR = "operator"  # journal entries that no edge sent: halts
SNAPSHOT_SECONDS = 30.0
MAX_PRESENCE = 100_000  # names; whoever may publish there must not fill our memory
RETRY_AFTER = 1.0  # seconds that a busy receipt asks for
FAREWELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decoded message on its way into the journal."""

    edge: str
    seq: int
    payload: bytes
    message: Hello | Update | Retired
    inbound: Inbound


class ServerDriver:
    """Runs one server role. `lock` is held while the fold changes, so that other threads may read it."""

    def __init__(
        self, run_id: str, role: Server, schema: bytes, size: int, store: Store, *, fingerprint: str,
        snapshot_every: int, max_message: int, chunk: int,
    ) -> None:  # fmt: skip
        self.run_id, self.role, self.schema, self.size = run_id, role, schema, size
        self.store, self.fingerprint, self.chunk, self.snapshot_every = store, fingerprint, chunk, snapshot_every
        # Memory is set aside for what a first part announces: no more than this run's largest message can need.
        self._partials = Partials(min(max_message, 4 * size + wire.MAX_META + 128))
        self.inbox: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.presence: dict[str, str] = {}
        self.counts: Counter[str] = Counter()  # accepted, duplicate, stale, busy, replayed, snapshots, rejected:{why}
        self.cursor = self.saved = self.epoch = 0
        self.store_up = True
        self._full, self.saved_at = False, time.monotonic()  # full: the journal has refused a message
        self.connection: Connection | None = None
        self._heard: set[str] = set()  # edges with an accepted message since farewell() began

    # -- start and recovery -------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Take the run over: snapshot, then the journal after it, to the same bits. Nothing is sent.

        May be called again: after a store failure, also one in the middle of this, it goes on from where it was.
        Raises Fenced when that is impossible, because the store is ahead of this process or behind it.
        """
        epoch = self.store.open(self.fingerprint)
        snapshot = self.store.snapshot()
        self._check_kept(0 if snapshot is None else snapshot.cursor)
        if snapshot is not None and not self.cursor:
            tensors, values = state_file.loads(snapshot.state)
            with self.lock:
                self.role.restore(tensors, values["role"])
            self.counts.update(values["counts"])
            self.cursor = self.saved = snapshot.cursor
        self._replay()
        self.epoch = epoch  # last: REST answers from here on

    def _check_kept(self, held: int) -> None:
        if self.cursor and held > self.cursor:
            raise Fenced(f"store: another aggregator has gone on with run {self.run_id!r} to {held}; stopping")
        if held < self.saved or (self.cursor > held and not self.store.read(self.cursor - 1, 1)):
            raise Fenced(
                f"store: run {self.run_id!r} has lost accepted messages (emptied, or an older copy), this process has "
                f"applied {self.cursor}; stopping without writing. A restart goes on from what the store still has"
            )

    def _replay(self) -> None:
        while records := self.store.read(self.cursor, 256):
            for record in records:
                self._fold(self._message(record.payload))
                self.cursor = record.position
                self.counts["replayed"] += 1

    def _message(self, payload: bytes) -> Hello | Update | Retired | Halt:
        received = wire.decode(payload)
        if received.meta.edge == OPERATOR:
            return Halt(received.meta.halt.version, received.meta.halt.reason)
        return wire.read_up(received, self.schema, self.size)

    def _fold(self, message: Hello | Update | Retired | Halt) -> list[Outgoing]:
        with self.lock:
            return self.role.on_message(message)

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self, connection: Connection, stop: threading.Event, idle: Callable[[], None]) -> None:
        """Serve until the role has halted or `stop` is set; `idle` is called at least every 0.25 s."""
        self.connection = connection
        self.announce()
        while not stop.is_set() and not self.role.halted:
            batch = self._gather()
            try:
                self.accept(batch)
                self._snapshot_if_due()
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

    def _gather(self) -> list[Inbound]:
        batch: list[Inbound] = []
        with contextlib.suppress(queue.Empty):
            batch.append(self.inbox.get(timeout=0.25))
            while len(batch) < BATCH:
                batch.append(self.inbox.get_nowait())
        return batch

    def accept(self, batch: Iterable[Inbound]) -> None:
        """Hop 6 of the design: authenticate, decode, validate; one atomic append; PUBACK; fold; receipt."""
        candidates = [candidate for inbound in batch if (candidate := self._candidate(inbound))]
        if not candidates:
            return
        try:
            answers = self.store.append([Entry(c.edge, c.seq, c.payload) for c in candidates])
        except ServiceError:
            for candidate in candidates:  # nothing is lost: the edge keeps the bytes and sends them again
                self._receipt(candidate.edge, candidate.seq, pb.Receipt.BUSY, retry=RETRY_AFTER)
                candidate.inbound.done()
            self.counts["busy"] += len(candidates)
            raise
        replies: dict[str, Outgoing] = {}
        for candidate, answer in zip(candidates, answers, strict=True):
            candidate.inbound.done()
            for outgoing in self._settle(candidate, answer):
                replies[outgoing.to] = outgoing  # an edge wants only the newest model
        for outgoing in replies.values():
            if outgoing.to != EVERYONE:  # the end is said by farewell(), after the last snapshot
                self.reply(outgoing)

    def _settle(self, candidate: Candidate, answer: Appended) -> list[Outgoing]:
        self.counts[answer.verdict] += 1
        edge, seq = candidate.edge, candidate.seq
        if answer.verdict == Verdict.ACCEPTED:
            self._heard.add(edge)
            before = self.role.version
            outgoing = self._fold(candidate.message)
            self.cursor = answer.position
            # One that aged, or came after the last, in the same batch is in the journal but not in the model.
            left_out = isinstance(candidate.message, Update) and self.role.version == before
            status = pb.Receipt.STALE if left_out else pb.Receipt.ACCEPTED
            self._receipt(edge, seq, status, last=answer.last_seq)
            return outgoing
        if answer.verdict == Verdict.DUPLICATE:
            self._receipt(edge, seq, pb.Receipt.DUPLICATE, last=answer.last_seq)
            # Its model may have been lost with whoever died: send the newest.
            return [Outgoing(edge, self.role.global_model())] if seq == answer.last_seq else []
        self._full = True
        self._receipt(edge, seq, pb.Receipt.BUSY, retry=RETRY_AFTER)
        return []

    def _candidate(self, inbound: Inbound) -> Candidate | None:
        if inbound.topic.split("/")[3:4] == ["presence"]:
            self._present(inbound)
            return None
        try:
            edge, seq, _ = topics.parse_up(inbound.topic)
            if edge == OPERATOR:
                raise WireError("topic", f"{OPERATOR} is not an edge")
        except WireError as error:
            self.counts[f"rejected:{error.reason}"] += 1
            inbound.done()
            return None
        try:
            return self._decode(edge, seq, inbound)
        except WireError as error:
            self._refuse(edge, seq, error.reason)
            if error.reason == "stale":
                self.reply(Outgoing(edge, self.role.global_model()))
        except Crowded:
            self.counts["busy"] += 1
            self._receipt(edge, seq, pb.Receipt.BUSY, retry=RETRY_AFTER)
        inbound.done()
        return None

    def _present(self, inbound: Inbound) -> None:
        edge = inbound.topic.rsplit("/", 1)[1]
        if edge in self.presence or len(self.presence) < MAX_PRESENCE:
            before, self.presence[edge] = self.presence.get(edge), inbound.payload[:20].decode("ascii", "replace")
            if self.presence[edge] != before:
                log.info("%s is %s", edge, self.presence[edge])
        inbound.done()

    def _decode(self, edge: str, seq: int, inbound: Inbound) -> Candidate | None:
        envelope = self._partials.add(edge, seq, inbound.payload)
        if envelope is None:
            inbound.done()  # a lost part costs a resend, not an update: acceptance is the receipt
            return None
        received = wire.decode(envelope)
        if (received.meta.run, received.meta.edge, received.meta.seq) != (self.run_id, edge, seq):
            raise WireError("identity", f"says {received.meta.run}/{received.meta.edge}/{received.meta.seq}")
        message = wire.read_up(received, self.schema, self.size)
        reason = self.role.screen(message) if isinstance(message, Update) else None
        if reason is not None:
            raise WireError(reason, "not for the journal")
        return Candidate(edge, seq, bytes(envelope), message, inbound)

    def _refuse(self, edge: str, seq: int, reason: str) -> None:
        status = pb.Receipt.STALE if reason == "stale" else pb.Receipt.REJECTED
        if reason == "halted":  # under way when the run ended: nobody's fault
            self.counts["late"] += 1
        else:
            self.counts["stale" if reason == "stale" else f"rejected:{reason}"] += 1
            log.warning("refused %s/%d: %s", edge, seq, reason)
        self._receipt(edge, seq, status, reason=reason)

    # -- downlink -----------------------------------------------------------------------------------------------

    def reply(self, outgoing: Outgoing) -> None:
        """Hop 8: a role's message to its edge, or to all."""
        message = outgoing.message
        assert isinstance(message, GlobalModel | Halt)
        kind = "model" if isinstance(message, GlobalModel) else "control"
        edges = list(self.role.edges) if outgoing.to == EVERYONE else [outgoing.to]
        for edge in edges:
            envelope = wire.down(self.run_id, edge, message, self.schema)
            for part, payload in enumerate(wire.split(envelope, self.chunk)):
                self._publish(topics.down(self.run_id, edge, kind, part), payload)
        if outgoing.to == EVERYONE:
            self.announce()

    def _receipt(
        self, edge: str, seq: int, status: pb.Receipt.Status, *, reason: str = "", retry: float = 0.0, last: int = 0
    ) -> None:
        receipt = pb.Receipt(status=status, reason=reason, retry_after_s=retry, last_seq=last)
        meta = pb.Meta(run=self.run_id, edge=edge, seq=seq, receipt=receipt)
        self._publish(topics.down(self.run_id, edge, "receipt"), wire.encode(meta))

    def announce(self) -> None:
        """Retain the run's state on the model topic; edges that see a new epoch send again what has no receipt."""
        epoch = self.epoch << 20 | (self.connection.connects if self.connection else 0)
        envelope = wire.announcement(
            self.run_id, epoch, self.state, self.role.global_model(), self.schema, inline_below=self.chunk - 4096
        )
        self._publish(topics.model(self.run_id), envelope, retain=True)

    def _publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        assert self.connection is not None
        self.connection.publish(topic, payload, retain=retain)

    @property
    def state(self) -> str:
        """waiting (for a first update), training, finished (T reached) or halted."""
        if self.role.halted:
            return "finished" if self.role.version >= self.role.horizon else "halted"
        return "training" if self.role.version else "waiting"

    def farewell(self, stop: threading.Event) -> None:
        """Tell every edge that the run is over, and hear (for FAREWELL_SECONDS) its last account of what it has spent:
        a push that was under way when the run ended is not in the model, but it was released and it counts.
        """
        self._heard.clear()
        self.reply(Outgoing(EVERYONE, Halt(self.role.version, self.role.halted)))
        deadline = time.monotonic() + FAREWELL_SECONDS
        while time.monotonic() < deadline and not stop.is_set():
            waiting = [edge for edge, state in self.presence.items() if state == "online" and edge in self.role.edges]
            if self._heard.issuperset(waiting):
                break
            self.accept(self._gather())
        self.save()

    # -- control and persistence --------------------------------------------------------------------------------

    def halt(self, reason: str) -> None:
        """End the run: a journal entry like any other, so that a replay ends at the same place. Driver thread only."""
        meta = pb.Meta(run=self.run_id, edge=OPERATOR, halt=pb.Halt(version=self.role.version, reason=reason))
        seq = self.store.last_seqs().get(OPERATOR, 0) + 1
        (answer,) = self.store.append([Entry(OPERATOR, seq, wire.encode(meta))])
        if answer.verdict == Verdict.ACCEPTED:
            self.cursor = answer.position
            self._fold(Halt(self.role.version, reason))

    def save(self) -> None:
        """Snapshot the fold and trim the journal behind it."""
        if self.cursor == self.saved:
            return
        tensors, role = self.role.state()
        self.store.save(Snapshot(self.cursor, state_file.dumps(tensors, {"role": role, "counts": dict(self.counts)})))
        self.saved, self.saved_at = self.cursor, time.monotonic()
        self.counts["snapshots"] += 1
        self.announce()

    def _snapshot_if_due(self) -> None:
        now = time.monotonic()
        due = self.cursor - self.saved >= self.snapshot_every or now - self.saved_at > SNAPSHOT_SECONDS
        if due or self._full:
            self.save()
            self.saved_at, self._full = now, False
        self._partials.expire()

    def _ride_out(self, error: ServiceError, stop: threading.Event) -> None:
        """The store failed: wait for it, take it over again, and fold what it kept although it did not answer."""
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
