"""The conversation of a worker with its server over one connection, as a state machine.

    session.send_hello()      # the server answers with its newest model
    session.receive(inbound)  # a model is now the task, or a receipt frees the outbox
    task = session.take_task()
    session.post(role.on_message(task))  # durable first, then sent

`State` names what a session waits for. The first part of `Session` is what the loop does with it
(`take_task`, `post`, `send_when_due`, `retire`). The second is what comes in (`receive`, by kind:
receipt, announcement, model or halt), and the last is how parts of a message go out.

Guarantee: a message is durable in the outbox before it is sent, and leaves it only with its
receipt. One message at a time lacks its receipt, and every retry sends the same bytes. So a lost
connection, or a restart of either side, costs neither an update nor privacy.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterable
from enum import Enum

from tacit.errors import ConfigError, PrivacyError, WireError
from tacit.protocol import topics, wire, wire_down, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Halt, Hello, Outgoing, Push, Report, Retired, ServerOutput
from tacit.protocol.vertical import Embed
from tacit_services.logs import Seldom
from tacit_services.transport.mqtt import Inbound
from tacit_services.transport.transfer import Download, Transfer
from tacit_services.worker.contract import BrokerConnection, LoopSettings, Worker
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.unheard import Unheard

log = logging.getLogger("tacit.edge")
_FINAL = (pb.Receipt.ACCEPTED, pb.Receipt.DUPLICATE, pb.Receipt.STALE, pb.Receipt.REJECTED)
_ACCEPTED = (pb.Receipt.ACCEPTED, pb.Receipt.DUPLICATE)  # the run has the message
_MAX_PROOF = 64  # bytes
MOST_BUSY = 60.0  # seconds that an aggregator may ask for
IDLE_SECONDS = 60.0  # between two Hellos of an edge that is not given a task


class State(Enum):
    """The states of a session, by what it waits for."""

    UNRECEIPTED = "the receipt of its oldest message"
    TASK_HERE = "nothing: there is a task to work on"
    UNKNOWN = "nothing: the server may not know the worker, which says Hello now"
    WAITING = "a task"
    OVERDUE = "a task, for longer than its patience: it asks again"


class Standing(Enum):
    """A connected worker's standing, as its presence message states it."""

    ONLINE = "online"
    REFUSING = "refusing"
    RETIRED = "retired"


class Session:
    """The session of one worker, for use in the worker's thread only."""

    def __init__(
        self,
        role: Worker,
        outbox: Outbox,
        settings: LoopSettings,
        connection: BrokerConnection,
        present: Callable[[str], None],
        role_state: Callable[[], bytes | None],
        *,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """present: publishes the standing. role_state: returns what to store with a message.

        It is the state from which a restarted role continues after the message; None: none.
        uniform: draws the random part of a pause.
        """
        self._role = role
        self.outbox = outbox
        self._settings = settings
        self._connection = connection
        self._present = present
        self._role_state = role_state
        self._clock = clock
        self._uniform = uniform
        self.standing = Standing.ONLINE
        self._seldom = Seldom()
        self._unheard = Unheard(role.edge)
        self._task: ServerOutput | None = None  # the server's newest message
        self.task_came = 0.0  # when it came
        self._download = Download(4 * settings.size + wire.MAX_META, self._want)
        self._upload: Transfer | None = None  # the oldest message, once it has been sent
        self._begun = outbox.next_seq()  # this and later messages are of this process
        self._connected_before = False
        self._epoch = 0
        self._send_at = self._clock()  # when the oldest message goes out (again)
        self._known = False  # whether the server has been told of the worker, and has not forgotten
        self._asked_at = self._clock()  # when a task was last asked for
        # Seconds until a task is asked for again; they grow while the server has none.
        self._wait = settings.patience

    @property
    def state(self) -> State:
        """The state of this session."""
        if self.outbox.oldest() is not None:
            return State.UNRECEIPTED
        if self._task is not None:
            return State.TASK_HERE
        if not self._known:
            return State.UNKNOWN
        if self._clock() - self._asked_at > self._wait:
            return State.OVERDUE
        return State.WAITING

    # -- what the loop does with it ----------------------------------------------------------------

    def take_task(self) -> ServerOutput | None:
        """Return the task, if there is one, and remove it."""
        task = self._task
        self._task = None
        self._asked()
        return task

    def post(self, outgoing: list[Outgoing], hold: Callable[[], None] = lambda: None) -> None:
        """Make messages durable, `hold` them back, and send the oldest.

        `outgoing` is empty then, so that a large update is not held twice. Raises PrivacyError.
        """
        while outgoing:
            self._store(outgoing.pop(0))
        hold()
        self._asked()
        self._send_now()
        self.send_when_due()

    def _store(self, out: Outgoing) -> None:
        assert isinstance(out.message, Hello | Push | Report | Embed | Retired)
        if isinstance(out.message, Push):
            ahead = self._role.next_charge()
        else:
            ahead = None
        seq = self.outbox.next_seq()
        self.outbox.put(seq, self._envelope(seq, out.message), self._role_state(), ahead)

    def _envelope(self, seq: int, message: Hello | Push | Report | Embed | Retired) -> wire.InPlace:
        settings = self._settings
        receipt = self.outbox.receipt
        return wire_up.up_in_place(
            settings.run_id, seq, message, settings.schema, settings.definition, receipt
        )

    def send_hello(self) -> None:
        """Send the role's Hello, which the server answers with its newest model."""
        self.post(self._role.start())

    def request_task(self) -> None:
        """Ask for the missing parts of a model under way, or by a Hello for the newest model."""
        if self._download.ask_again():
            self._asked()
        else:
            self._wait = min(2 * self._wait, max(IDLE_SECONDS, self._settings.patience))
            self.send_hello()

    def send_when_due(self) -> None:
        """Send the oldest message if it is due, or ask which of its parts are missing.

        Of one that was never sent all are: its first window goes out at once.
        """
        oldest = self.outbox.oldest()
        # Not while disconnected: paho would keep every copy. The reconnection makes it due.
        if oldest is None or self._clock() < self._send_at or not self._connection.up:
            return
        seq, envelope = oldest
        upload = self._upload
        if upload is not None and upload.envelope is envelope:
            self._unheard.again(seq, min(len(envelope), upload.chunk))
            self._send(upload.inquiry())
            return
        upload = Transfer(envelope, self._settings.chunk, topics.number_front(seq))
        self._upload = upload
        self._send(upload.first() if seq >= self._begun else upload.inquiry())

    def set_standing(self, standing: Standing) -> None:
        """Publish the worker's standing, if it has changed."""
        if standing is not self.standing:
            self.standing = standing
            self._present(standing.value)

    def retire(self, outgoing: list[Outgoing]) -> None:
        """Send the role's last messages; no others follow them."""
        self.set_standing(Standing.RETIRED)
        log.info("%s retires: its budget is spent", self._role.edge)
        self.post(outgoing)

    def abandon(self) -> None:
        """Drop the task and all messages without a receipt, as the run is over."""
        self._task = None
        self.outbox.give_up()

    def reconnected(self) -> None:
        """Handle a connection that is up: after the first time, send again what has no receipt."""
        if self._connected_before:
            self._send_now()
            self._download.ask_again()
        self._connected_before = True

    # -- inbound -----------------------------------------------------------------------------------

    def receive(self, inbound: Inbound) -> None:
        """Take in one message from the broker.

        Raises PrivacyError where the aggregator has seen messages that this disk does not have.
        """
        try:
            envelope = self._whole(inbound)
            if envelope is not None:
                self._dispatch(wire.decode(envelope), inbound.retained)
        except WireError as error:
            if count := self._seldom.due(error.reason):
                line = "refused a message on %s: %s" + (f" (one of {count})" if count > 1 else "")
                log.warning(line, inbound.topic, error, extra={"edge": self._role.edge})
        inbound.done()

    def _whole(self, inbound: Inbound) -> bytes | wire.Whole | None:
        # tacit/v1/{run}/down/{edge}/{kind}/{part}, or the announcement
        kind = inbound.topic.split("/")[5:6]
        if kind == ["control"]:
            return wire.Assembler(wire.MAX_META).add(inbound.payload)
        if kind != ["model"]:
            return inbound.payload
        before = self._download.received
        envelope = self._download.add(inbound.payload, first=inbound.topic.endswith("/0"))
        if self._download.received > max(
            1, before
        ):  # more parts are coming, so do not ask; a first part alone proves nothing
            self._asked()
        return envelope

    def _dispatch(self, received: wire.Received, retained: bool) -> None:
        meta = received.meta
        kind = received.meta.WhichOneof("kind")
        if meta.run != self._settings.run_id or meta.edge not in (self._role.edge, "*"):
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
            message = wire_down.read_down(received, self._settings.schema, self._settings.size)
            if isinstance(message, Halt):
                self._role.on_message(message)
            elif (
                self.outbox.oldest() is None
            ):  # else a newer one will follow the receipt that is still to come
                self._task = message
                self._wait = self._settings.patience
                self.task_came = self._clock()

    def _announcement(self, announcement: pb.Announcement, retained: bool) -> None:
        # It says less than a Halt, which has the reason, and may come after it.
        if announcement.state in ("finished", "halted") and not self._role.halted:
            self._role.on_message(Halt(announcement.version, announcement.state))
        if (
            announcement.epoch != self._epoch and not retained
        ):  # an aggregator has (re)started or reconnected
            self._send_now()
            if not self._download.ask_again():
                self._known = False
        self._epoch = announcement.epoch

    def _receipt(self, seq: int, receipt: pb.Receipt) -> None:
        pending = self.outbox.oldest()
        if seq == 0 and receipt.reason == "want":  # the model that was under way
            self._download.forget()
            self._known = False
        if pending is None or seq != pending[0]:
            return  # a second receipt for the same bytes
        self._unheard.answered(tuple(receipt.missing))
        if receipt.status == pb.Receipt.DUPLICATE and receipt.last_seq > self.outbox.next_seq() - 1:
            raise PrivacyError(
                f"outbox of {self._role.edge}: the aggregator has message {receipt.last_seq}, "
                f"this outbox ends at "
                f"{self.outbox.next_seq() - 1}; its ledger was rolled back or lost, refusing to "
                f"train"
            )
        if receipt.proof and receipt.last_seq < self.outbox.next_seq():
            self.outbox.hold(pb.Held(seq=receipt.last_seq, proof=receipt.proof[:_MAX_PROOF]))
        if receipt.status == pb.Receipt.PARTIAL and self._upload is not None:
            self._send(self._upload.more(receipt.missing))
        elif receipt.status in _FINAL:
            self.outbox.done(seq, accepted=receipt.status in _ACCEPTED)
            self._upload = None  # a large envelope is not held beside the model that comes now
            self._send_now()  # the next one, if any
            if receipt.status == pb.Receipt.REJECTED:
                self._refused(seq, receipt.reason)
        else:
            if math.isfinite(receipt.retry_after_s):
                delay = receipt.retry_after_s
            else:
                delay = 1.0
            self._send_at = self._clock() + min(max(delay, 0.1), MOST_BUSY) * self._uniform(
                0.5, 1.5
            )

    def _refused(self, seq: int, reason: str) -> None:
        why = wire.printable(reason, wire.MAX_REASON)
        facts = {"edge": self._role.edge, "seq": seq}
        log.warning("message %d was refused: %s", seq, why, extra=facts)
        self._stop_if_rolled_back(reason)
        if reason.startswith(("definition", "name")):
            self.outbox.settle()  # with another run file the worker is heard
        if reason.startswith("definition"):
            raise ConfigError(
                f"{self._role.edge}: its run definition is not the aggregator's; {why}; "
                "use the aggregator's run file"
            )
        if reason.startswith("name"):
            raise ConfigError(
                f"{self._role.edge}: the aggregator's run has no such place; {why}; "
                "it has edges.count + data.spare of its run file"
            )
        if reason == "unknown":
            self._known = False  # say Hello now; after any other refusal, after a while
        spent = reason == "budget" and self._role.releaser.plan.noise_at == "server"
        if spent and self.standing is not Standing.RETIRED:
            self.retire(self._role.retire("the budget in the aggregator's ledger is spent"))

    def _stop_if_rolled_back(self, reason: str) -> None:
        count = self._role.releaser.ledger.charged().count
        if reason == "rollback":
            raise PrivacyError(
                f"ledger of {self._role.edge}: it has {count} releases, the aggregator has seen "
                f"more; an older copy "
                "was put back, refusing to train"
            )
        if reason == "clone":
            raise PrivacyError(
                f"ledger of {self._role.edge}: the aggregator has seen {count} releases with "
                f"another history; another "
                "copy is in use, refusing to train"
            )

    # -- outbound ----------------------------------------------------------------------------------

    def _asked(self) -> None:
        """Note that the server has just been asked or is sending, so that patience begins anew."""
        self._known = True
        self._asked_at = self._clock()

    def _send_now(self) -> None:
        self._send_at = self._clock()

    def _send(self, payloads: Iterable[tuple[int, bytes]]) -> None:
        """Publish parts of the oldest message, to be sent again if no answer comes in time."""
        topic = topics.up_numbered(self._settings.run_id, self._role.edge)
        for _, payload in payloads:
            self._connection.publish(topic, payload)
        self._asked()
        self._send_at = self._asked_at = self._clock() + self._settings.patience * self._uniform(
            0.8, 1.2
        )

    def _want(self, want: pb.Want) -> None:
        """Tell the server which parts of the model under way are missing."""
        meta = pb.Meta(run=self._settings.run_id, edge=self._role.edge, want=want)
        if self._connection.up:
            payload = wire.part(wire.encode(meta), self._settings.chunk, 0)
            self._connection.publish(
                topics.up_numbered(self._settings.run_id, self._role.edge), payload
            )
