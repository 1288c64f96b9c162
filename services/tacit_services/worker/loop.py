"""The edge side of a run over MQTT:

outbox in front of the network, one unreceipted message at a time.
"""

from __future__ import annotations

import logging
import math
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tacit.errors import PrivacyError, WireError
from tacit.privacy.ledger import Ledger
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Halt, Hello, Outgoing, Push, Report, Retired, ServerOutput
from tacit.protocol.vertical import Embed
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.transport.transfer import Download, Transfer
from tacit_services.worker.cpu_turns import Turns
from tacit_services.worker.outbox import Outbox

log = logging.getLogger("tacit.edge")
_T = TypeVar("_T")
_FINAL = (pb.Receipt.ACCEPTED, pb.Receipt.DUPLICATE, pb.Receipt.STALE, pb.Receipt.REJECTED)
UP = "up"  # put into the inbox when the connection comes (back) up
FAREWELL_SECONDS = 3.0  # how long the last account waits for its receipt
MOST_BUSY = 60.0  # seconds that an aggregator may ask for
IDLE_SECONDS = 60.0  # between two Hellos of an edge that is not given a task
COMPLAINT_SECONDS = 30.0  # between two lines of log on models that are refused


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What the loop needs besides its role:

    run, model schema, largest payload, patience in seconds, slowdown.
    """

    run_id: str
    schema: bytes
    size: int
    chunk: int
    patience: float
    slowdown: float = 1.0  # so many times as long as computing takes


class Door(Protocol):
    """What pays for all that a worker says."""

    @property
    def ledger(self) -> Ledger:
        """The data's."""

    @property
    def plan(self) -> Any:
        """Public numbers; `noise_at` among them."""


class Worker(Protocol):
    """What the loop needs of a role: an edge's, a vertical party's."""

    edge: str
    halted: str
    refusals: int
    refusal: str

    @property
    def releaser(self) -> Door:
        """Its only way out."""

    def start(self) -> list[Outgoing]:
        """What it says of itself."""

    def on_message(self, message: Any) -> list[Outgoing]:
        """What it makes of the server's word."""

    def retire(self, reason: str) -> list[Outgoing]:
        """Its last word."""


class EdgeLoop:
    """Drives one edge role until Halt, `stop`, or a refusal."""

    def __init__(
        self, role: Worker, outbox: Outbox, terms: LoopSettings, turns: Turns | None = None
    ) -> None:
        self.role, self.outbox, self.terms = role, outbox, terms
        self._turns = turns or Turns(None)
        self.inbox: queue.SimpleQueue[Inbound | str] = queue.SimpleQueue()
        self.retired = self.refusing = False
        self._present: Callable[[str], None] = lambda state: None
        self._complained_at = -COMPLAINT_SECONDS
        self._model: ServerOutput | None = None  # the server's newest word
        self._download = Download(4 * terms.size + wire.MAX_META, self._want)
        self._upload: Transfer | None = None  # the oldest message, once it has been sent
        self._connected = False
        self._epoch = 0
        self._resend_at = 0.0  # when the oldest message goes out (again); 0: at once
        self._asked_at = 0.0  # when a model was last asked for
        self._wait = (
            terms.patience
        )  # until it is asked for again; longer and longer where the server has no task
        self._connection: Connection | None = None
        self._stop = threading.Event()

    def subscriptions(self) -> list[str]:
        """The topics to hear."""
        return [topics.down_all(self.terms.run_id, self.role.edge), topics.model(self.terms.run_id)]

    def receive(self, inbound: Inbound) -> None:
        """From the network thread."""
        self.inbox.put(inbound)

    def run(
        self, connection: Connection, stop: threading.Event, present: Callable[[str], None]
    ) -> str:
        """Serve; returns why it ended. `present` publishes this edge's state.

        Raises PrivacyError.
        """
        self._connection, self._present, self._stop = connection, present, stop
        self.outbox.check(self.role.releaser.ledger)
        while not stop.is_set() and not self.role.halted:
            self._take()
            if self.outbox.oldest() is not None:
                self._send_when_due()
            elif self.retired:
                pass  # nothing more to say; wait for Halt
            elif self._model is not None:
                self._step()
            elif time.monotonic() - self._asked_at > self._wait:
                self._ask_for_model()
        if self.role.halted and not self.retired:
            self._last_account()
        return self.role.halted or "stopped"

    def _last_account(self) -> None:
        """Say once more what has been spent:

        a push that came too late is not in the model, but it was released.
        """
        while (pending := self.outbox.oldest()) is not None:
            self.outbox.done(pending[0])  # the run is over: it would be refused
        deadline = time.monotonic() + FAREWELL_SECONDS
        self._post(self.role.start())
        while self.outbox.oldest() is not None and time.monotonic() < deadline:
            self._take()

    # -- inbound -----------------------------------------------------------------------------------

    @property
    def _nothing_to_do(self) -> bool:
        """Whether there is nothing to be done before something comes."""
        return self.retired or self._model is None or self.outbox.oldest() is not None

    def _take(self) -> None:
        """Handle everything that has come;

        wait shortly if nothing has and nothing is to be done.
        """
        try:
            item = self.inbox.get(timeout=0.1) if self._nothing_to_do else self.inbox.get_nowait()
            while True:
                self._handle(item)
                item = self.inbox.get_nowait()
        except queue.Empty:
            return

    def _handle(self, item: Inbound | str) -> None:
        if isinstance(item, str):
            if self._connected:
                self._resend_at = 0.0  # reconnected: what has no receipt goes out again
                self._download.ask_again()
            self._connected = True
            return
        try:
            envelope = self._whole(item)
            if envelope is not None:
                self._dispatch(wire.decode(envelope), item.retained)
        except WireError as error:
            log.warning(
                "refused a message on %s: %s", item.topic, error, extra={"edge": self.role.edge}
            )
        item.done()

    def _whole(self, item: Inbound) -> bytes | bytearray | None:
        kind = item.topic.split("/")[
            5:6
        ]  # tacit/v1/{run}/down/{edge}/{kind}/{part}, or the announcement
        if kind == ["control"]:
            return wire.Assembler(wire.MAX_META).add(item.payload)
        if kind != ["model"]:
            return item.payload
        before = self._download.received
        envelope = self._download.add(item.payload, first=item.topic.endswith("/0"))
        if self._download.received > max(
            1, before
        ):  # it comes: no need to ask. A first part alone may be anything
            self._asked_at = time.monotonic()
        return envelope

    def _dispatch(self, received: wire.Received, retained: bool) -> None:
        meta, kind = received.meta, received.meta.WhichOneof("kind")
        if meta.run != self.terms.run_id or meta.edge not in (self.role.edge, "*"):
            raise WireError(
                "identity", "for " + wire.printable(f"{meta.run}/{meta.edge}", wire.MAX_REASON)
            )
        if kind == "receipt":
            self._receipt(meta.seq, meta.receipt)
        elif kind == "announcement":
            self._announcement(meta.announcement, retained)
        else:
            if meta.HasField("answer"):
                self._receipt(meta.answered, meta.answer)
            message = wire.read_down(received, self.terms.schema, self.terms.size)
            if isinstance(message, Halt):
                self.role.on_message(message)
            elif (
                self.outbox.oldest() is None
            ):  # else a newer one will follow the receipt that is still to come
                self._model, self._wait = message, self.terms.patience

    def _announcement(self, announcement: pb.Announcement, retained: bool) -> None:
        if announcement.state in ("finished", "halted"):
            self.role.on_message(Halt(announcement.version, announcement.state))
        if (
            announcement.epoch != self._epoch and not retained
        ):  # an aggregator has (re)started or reconnected
            self._resend_at = 0.0
            if not self._download.ask_again():
                self._asked_at = 0.0
        self._epoch = announcement.epoch

    def _receipt(self, seq: int, receipt: pb.Receipt) -> None:
        pending = self.outbox.oldest()
        if seq == 0 and receipt.reason == "want":  # the model that was under way
            self._download.forget()
            self._asked_at = 0.0
        if pending is None or seq != pending[0]:
            return  # a second receipt for the same bytes
        if receipt.status == pb.Receipt.DUPLICATE and receipt.last_seq > self.outbox.next_seq() - 1:
            raise PrivacyError(
                f"outbox of {self.role.edge}: the aggregator has message {receipt.last_seq}, "
                f"this outbox ends at "
                f"{self.outbox.next_seq() - 1}; its ledger was rolled back or lost, refusing to "
                f"train"
            )
        if receipt.status == pb.Receipt.PARTIAL and self._upload is not None:
            self._send(seq, self._upload.more(receipt.missing))
        elif receipt.status in _FINAL:
            self.outbox.done(seq)
            self._resend_at = 0.0  # the next one, if any
            if receipt.status == pb.Receipt.REJECTED:
                why = wire.printable(receipt.reason, wire.MAX_REASON)
                log.warning("message %d was refused: %s", seq, why, extra=self._facts(seq))
                self._stop_if_rolled_back(receipt.reason)
                if receipt.reason == "unknown":
                    self._asked_at = 0.0  # say Hello now; after any other refusal, after a while
                if (
                    receipt.reason == "budget"
                    and self.role.releaser.plan.noise_at == "server"
                    and not self.retired
                ):
                    self._retire(self.role.retire("the budget in the aggregator's ledger is spent"))
        else:
            asked = receipt.retry_after_s if math.isfinite(receipt.retry_after_s) else 1.0
            self._resend_at = time.monotonic() + min(max(asked, 0.1), MOST_BUSY) * random.uniform(
                0.5, 1.5
            )

    def _stop_if_rolled_back(self, reason: str) -> None:
        count = self.role.releaser.ledger.charged().count
        if reason == "rollback":
            raise PrivacyError(
                f"ledger of {self.role.edge}: it has {count} releases, the aggregator has seen "
                f"more; an older copy was "
                "put back, refusing to train"
            )
        if reason == "clone":
            raise PrivacyError(
                f"ledger of {self.role.edge}: the aggregator has seen {count} releases with "
                f"another history; another "
                "copy is in use, refusing to train"
            )

    def _facts(self, seq: int | None) -> dict[str, str | int]:
        """What log records name apart."""
        return {"edge": self.role.edge} | ({} if seq is None else {"seq": seq})

    # -- outbound ----------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """What this edge's presence says while it is connected."""
        return "retired" if self.retired else "refusing" if self.refusing else "online"

    def _step(self) -> None:
        assert self._model is not None
        model, self._model = self._model, None
        self._asked_at, refusals = time.monotonic(), self.role.refusals
        outgoing = self._computed(lambda: self.role.on_message(model))
        if self.role.refusals > refusals:
            self._refuse()
        elif any(isinstance(out.message, Retired) for out in outgoing):
            self._retire(outgoing)
        else:
            if self.refusing:
                self.refusing = False
                log.info("%s works again: a model that its policy allows", self.role.edge)
                self._present(self.state)
            self._post(outgoing)

    def _computed(self, work: Callable[[], _T]) -> _T:
        """What `work` gives, computed in our turn;

        an experiment's straggler takes longer over it.
        """
        with self._turns.take():
            began = time.monotonic()
            made = work()
            took = time.monotonic() - began
        if self.terms.slowdown > 1:
            self._stop.wait((self.terms.slowdown - 1) * took)
        return made

    def _refuse(self) -> None:
        """Say so:

        in presence and by a Hello at once, then by every Hello that asks for a model, after
        `patience`.
        """
        if time.monotonic() - self._complained_at >= COMPLAINT_SECONDS:
            self._complained_at = time.monotonic()
            why, facts = self.role.refusal, self._facts(None)
            log.warning(
                "%s refuses a model (its %d.): %s",
                self.role.edge,
                self.role.refusals,
                why,
                extra=facts,
            )
        if not self.refusing:  # only then: the same model answers
            self.refusing = True
            self._present(self.state)
            self._post(self.role.start())

    def _retire(self, outgoing: list[Outgoing]) -> None:
        self.retired = True
        log.info("%s retires: its budget is spent", self.role.edge)
        self._present(self.state)
        self._post(outgoing)

    def _post(self, outgoing: list[Outgoing]) -> None:
        for out in outgoing:
            assert isinstance(out.message, Hello | Push | Report | Embed | Retired)
            seq = self.outbox.next_seq()
            envelope = wire.up(self.terms.run_id, seq, out.message, self.terms.schema)
            self.outbox.put(seq, envelope, self.role.releaser.ledger, self._state())
        self._asked_at = time.monotonic()
        self._resend_at = 0.0
        self._send_when_due()

    def _state(self) -> bytes | None:
        """What the role must find again when it goes on after this message;

        an edge's tasks need nothing.
        """
        return None

    def _send_when_due(self) -> None:
        oldest, now = self.outbox.oldest(), time.monotonic()
        assert self._connection is not None
        # Not while disconnected: paho would keep every copy. The reconnection sets _resend_at to 0.
        if oldest is None or now < self._resend_at or not self._connection.up:
            return
        seq, envelope = oldest
        if self._upload is None or self._upload.envelope is not envelope:
            self._upload = Transfer(envelope, self.terms.chunk)
        self._send(seq, self._upload.inquiry())

    def _send(self, seq: int, payloads: list[tuple[int, bytes]]) -> None:
        """Publish parts of message `seq`; it is sent again unless an answer comes soon enough."""
        assert self._connection is not None
        for part, payload in payloads:
            self._connection.publish(
                topics.up(self.terms.run_id, self.role.edge, seq, part), payload
            )
        soon = self.terms.patience * random.uniform(0.8, 1.2)
        self._resend_at = self._asked_at = time.monotonic() + soon

    def _want(self, want: pb.Want) -> None:
        """Say what is missing of the model that is under way."""
        meta = pb.Meta(run=self.terms.run_id, edge=self.role.edge, want=want)
        if self._connection is not None and self._connection.up:
            payload = wire.part(wire.encode(meta), self.terms.chunk, 0)
            self._connection.publish(topics.up(self.terms.run_id, self.role.edge, 0, 0), payload)

    def _ask_for_model(self) -> None:
        """Nothing has come for a while:

        ask for what is missing of a model under way, or by a Hello for the newest.
        """
        if self._download.ask_again():
            self._asked_at = time.monotonic()
        else:
            self._wait = min(2 * self._wait, max(IDLE_SECONDS, self.terms.patience))
            self._post(self.role.start())
