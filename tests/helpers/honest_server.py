"""A small honest server on a simulated network: it folds every number of an edge once, and answers.

The role, the reassembly of parts, the proofs of receipts and all encoding are the product's; the
journal is a list, which a restart folds again. What the real aggregator does beyond that (guard,
store, scheduler, REST) is tested with the real aggregator.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass

from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.aggregator.ingest.receipts import Receipts
from tacit_services.aggregator.reading import state_of
from tacit_services.transport.mqtt import Inbound
from tacit_services.transport.transfer import Transfer

from tacit.algorithms import registry
from tacit.config import RunFile
from tacit.errors import StoreLost
from tacit.protocol import envelope as envelopes
from tacit.protocol import topics, wire, wire_down, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Halt, Outgoing, ServerOutput, Update
from tests.helpers.simulated_network import SimulatedNetwork

NAME = "aggregator"
ACCEPTED, DUPLICATE, STALE, REJECTED, BUSY, PARTIAL = (
    pb.Receipt.ACCEPTED,
    pb.Receipt.DUPLICATE,
    pb.Receipt.STALE,
    pb.Receipt.REJECTED,
    pb.Receipt.BUSY,
    pb.Receipt.PARTIAL,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One accepted message."""

    edge: str
    seq: int
    envelope: bytes
    kind: str

    @property
    def tensor_digest(self) -> bytes:
        """SHA-256 of what the message holds after its head: of an update, its vector."""
        return hashlib.sha256(self.envelope[envelopes.tensor_at(self.envelope) :]).digest()


class HonestServer:
    """One server of a run. `journal` outlives a restart.

    withholds: whether an edge gets its receipt alone, until `grant`. verdicts: receipts that the
    next new messages get instead of an honest one.
    """

    def __init__(self, network: SimulatedNetwork, run: RunFile, run_id: str, chunk: int) -> None:
        self._network, self._definition, self._run, self._chunk = (
            network,
            run.define(),
            run_id,
            chunk,
        )
        self._model = run.build_model()
        self.journal: list[Entry] = []
        self.halt_reason = ""  # of an operator
        self.epoch, self.withholds, self.lost_store = 0, False, ""
        self.verdicts: deque[pb.Receipt] = deque()
        self._receipts = Receipts(b"a key of the test", run_id)
        self.start()

    # -- its life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Fold the journal, and connect."""
        self.role = registry.server(self._definition, self._model)
        for entry in self.journal:
            received = wire.decode(bytearray(entry.envelope))
            self.role.on_message(wire_up.read_up(received, self.schema, self._model.size))
        if self.halt_reason:
            self.role.on_message(Halt(self.role.version, self.halt_reason))
        self._reassembly = Reassembly(1 << 24)
        self._transfers: dict[str, Transfer] = {}
        self._connection = self._network.client(
            NAME, [topics.up_all(self._run)], self._hear, on_up=self._came_up
        )

    def restart(self, lost: int = 0, seconds: float = 0.5) -> None:
        """Die now, with the last `lost` entries of the journal, and start again after a while."""
        self._connection.kill()
        if lost:
            del self.journal[-lost:]
        self._network.timeline.after(seconds, self.start)

    def halt(self, reason: str) -> None:
        """End the run, as an operator does."""
        self.halt_reason = reason
        self.role.on_message(Halt(self.role.version, reason))
        self.announce()

    def grant(self) -> None:
        """Withhold no task any more, and give every edge its newest."""
        self.withholds = False
        for edge in dict.fromkeys(entry.edge for entry in self.journal):
            for out in self.role.answer(edge):
                self.send(out)

    # -- what it knows -----------------------------------------------------------------------------

    @property
    def schema(self) -> bytes:
        """SHA-256 of the model's schema."""
        return self._model.schema_hash()

    @property
    def pushes(self) -> list[Entry]:
        """The updates that were accepted, in order."""
        return [entry for entry in self.journal if entry.kind == "update"]

    def kinds(self) -> list[str]:
        """Return the kinds of all accepted messages, in order."""
        return [entry.kind for entry in self.journal]

    def last_seq(self, edge: str) -> int:
        """Return the number of the newest accepted message of `edge`; 0: none was."""
        return max((entry.seq for entry in self.journal if entry.edge == edge), default=0)

    # -- what it hears -----------------------------------------------------------------------------

    def _hear(self, inbound: Inbound) -> None:
        edge, seq, payload = topics.sender(inbound.topic, inbound.payload)
        question = len(payload) == wire.PART_HEADER and wire.read_question(payload)
        if question and seq <= self.last_seq(edge):
            self._answer_again(edge, seq)
            return
        envelope = self._reassembly.add(edge, seq, payload)
        if envelope is None:
            if answer := self._reassembly.answer(edge, seq):
                self.receipt(edge, seq, answer)
            return
        received = wire.decode(envelope)
        if received.meta.HasField("held"):
            self._check_held(edge, received.meta.held)
        if received.meta.HasField("want"):
            self._send_more(edge, received.meta.want)
        elif seq <= self.last_seq(edge):
            self._answer_again(edge, seq)
        elif self.verdicts:
            self.receipt(edge, seq, self.verdicts.popleft())
        else:
            self._take(edge, seq, bytes(envelope), received)

    def _check_held(self, edge: str, receipt: pb.Held) -> None:
        try:
            self._receipts.check(edge, receipt, self.last_seq(edge))
        except StoreLost as error:  # the aggregator would leave; the test goes on and asks
            self.lost_store = str(error)

    def _take(self, edge: str, seq: int, envelope: bytes, received: wire.Received) -> None:
        message = wire_up.read_up(received, self.schema, self._model.size)
        if isinstance(message, Update) and (reason := self.role.screen(message)):
            self.receipt(edge, seq, pb.Receipt(status=REJECTED, reason=reason))
            return
        stale, halted = self.role.stale, self.role.halted
        self.journal.append(Entry(edge, seq, envelope, str(received.meta.WhichOneof("kind"))))
        outgoing = [out for out in self.role.on_message(message) if out.to == edge]
        status = STALE if self.role.stale > stale else ACCEPTED
        self._reply(edge, seq, pb.Receipt(status=status, last_seq=seq), outgoing)
        if self.role.halted and not halted:
            self.announce()

    def _answer_again(self, edge: str, seq: int) -> None:
        last = self.last_seq(edge)
        outgoing = self.role.answer(edge) if seq == last and not self.role.halted else []
        self._reply(edge, seq, pb.Receipt(status=DUPLICATE, last_seq=last), outgoing)

    def _came_up(self) -> None:
        self.epoch += 1  # edges send again what has no receipt
        self.announce()

    # -- what it says ------------------------------------------------------------------------------

    def _reply(self, edge: str, seq: int, receipt: pb.Receipt, outgoing: list[Outgoing]) -> None:
        """Send the receipt, with the role's message in one where there is one that fits."""
        proven = self._receipts.proven(edge, receipt)
        tasks = [out for out in outgoing if isinstance(out.message, Halt) or not self.withholds]
        if len(tasks) == 1 and self._fits(tasks[0]):
            self.send(tasks[0], seq, proven)
            return
        self.receipt(edge, seq, proven)
        for out in tasks:
            self.send(out)

    def _fits(self, out: Outgoing) -> bool:
        return isinstance(out.message, Halt) or 4 * self._model.size <= self._chunk - 4096

    def receipt(self, edge: str, seq: int, receipt: pb.Receipt, run: str = "") -> None:
        """Send a receipt of message `seq` alone; `run`: of another run than its own."""
        meta = pb.Meta(run=run or self._run, edge=edge, seq=seq, receipt=receipt)
        self.publish(topics.down(self._run, edge, "receipt"), wire.encode(meta))

    def send(self, out: Outgoing, seq: int = 0, receipt: pb.Receipt | None = None) -> None:
        """Send a message of the role to one edge, with the receipt of message `seq`, if given."""
        assert isinstance(out.message, ServerOutput)
        envelope = wire_down.down(self._run, out.to, out.message, self.schema, receipt, seq)
        kind = "control" if isinstance(out.message, Halt) else "model"
        transfer = self._transfers[out.to] = Transfer(envelope, self._chunk)
        for number, payload in transfer.first():
            self.publish(topics.down(self._run, out.to, kind, number), payload)

    def _send_more(self, edge: str, want: pb.Want) -> None:
        transfer = self._transfers.get(edge)
        if transfer is None or transfer.head() != want.head:
            if want.missing:
                self.receipt(edge, 0, pb.Receipt(status=REJECTED, reason="want"))
            return
        for number, payload in transfer.more(want.missing, lost=want.lost):
            self.publish(topics.down(self._run, edge, "model", number), payload)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Send anything."""
        self._connection.publish(topic, payload, retain=retain)

    def announce(self) -> None:
        """Announce how the run stands, retained."""
        state, model = state_of(self.role), self.role.global_model()
        content = wire_down.announcement(
            *(self._run, self.epoch, state, model, self.schema),
            inline_below=max(0, self._chunk - 4096),
        )
        self.publish(topics.model(self._run), content, retain=True)
