"""The aggregator's messages to edges: models, halts, receipts, and the retained announcement."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

from torch import Tensor

from tacit.protocol import topics, wire, wire_down
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import GlobalModel, Halt, Outgoing, ServerOutput
from tacit.protocol.vertical import Feedback, Request, Roster
from tacit_services.aggregator.broker_link import Link, ServerConnection
from tacit_services.aggregator.task_scheduler import TaskScheduler
from tacit_services.transport.transfer import Transfer

# An edge may report parts as lost, or be sent the beginning of the same model, once in so many
# seconds: a question costs it some bytes, and a window of parts is megabytes.
LOST_SECONDS = 0.5


class Downlink:
    """The way of messages to edges: each is encoded, cut into chunks, and published."""

    def __init__(
        self,
        run_id: str,
        schema: bytes,
        chunk: int,
        link: Link,
        scheduler: TaskScheduler,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """scheduler: decides when a task may go out."""
        self._run = run_id
        self._schema = schema
        self._chunk = chunk
        self._link = link
        self._scheduler = scheduler
        self._clock = clock
        self._transfers: dict[
            str, tuple[Transfer, float]
        ] = {}  # models under way, and when parts of each were last reported as lost
        # The latest model in parts, for which look, and when; weakly, so that no old model stays
        # for an edge.
        self._begun: dict[str, tuple[weakref.ref[Tensor], int, float]] = {}

    def reply(self, outgoing: Outgoing, seq: int = 0, receipt: pb.Receipt | None = None) -> None:
        """Send a role's message to one edge.

        The receipt of the edge's message `seq`, if given, goes in the same message if that is
        short. A message in many parts follows the receipt. So the receipt need not wait for them,
        and the same model is always the same bytes for every message that it answers. If the
        scheduler holds a task back, or the same long model has just begun on its way, the edge gets
        the receipt alone.
        """
        edge = outgoing.to
        message = outgoing.message
        assert isinstance(message, ServerOutput)
        waits = isinstance(message, GlobalModel) and not (
            message.look or self._scheduler.admits(edge)
        )
        if receipt is not None and (waits or not self._inline(message)):
            self.receipt(edge, seq, receipt)
            seq = 0
            receipt = None
        if waits:
            return
        if isinstance(message, Halt):
            kind = "control"
        else:
            kind = "model"
        if isinstance(message, GlobalModel) and self._has_just_begun(edge, message):
            return
        envelope = wire_down.down_in_place(self._run, edge, message, self._schema, receipt, seq)
        self._transfers.pop(edge, None)
        if wire.count_parts(len(envelope), self._chunk) == 1:
            self._connection.publish(
                topics.down(self._run, edge, kind), wire.part(envelope, self._chunk, 0)
            )
            return
        transfer = Transfer(envelope, self._chunk)
        self._transfers[edge] = transfer, 0.0
        for part, payload in transfer.first():
            self._connection.publish(topics.down(self._run, edge, kind, part), payload)

    def _has_just_begun(self, edge: str, model: GlobalModel) -> bool:
        """Check whether this model, in parts, was begun for the edge a moment ago, and note it."""
        if self._inline(model):
            return False
        now = self._clock()
        begun = self._begun.get(edge)
        if (
            begun
            and begun[0]() is model.params
            and begun[1] == model.look
            and now - begun[2] < LOST_SECONDS
        ):
            return True
        self._begun[edge] = weakref.ref(model.params), model.look, now
        return False

    def more(self, edge: str, want: pb.Want) -> None:
        """Send the edge more parts of the model that is under way to it.

        If another model is under way by now, it is told so (REJECTED, message 0).
        """
        transfer, lost_at = self._transfers.get(edge, (None, 0.0))
        if transfer is None or transfer.head() != want.head:
            if want.missing:
                self.receipt(edge, 0, pb.Receipt(status=pb.Receipt.REJECTED, reason="want"))
            return
        if not want.missing:
            del self._transfers[edge]
            return
        lost = want.lost and self._clock() - lost_at >= LOST_SECONDS
        if lost:
            self._transfers[edge] = transfer, self._clock()
        for part, payload in transfer.more(want.missing, lost=lost):
            self._connection.publish(topics.down(self._run, edge, "model", part), payload)

    def _inline(self, message: ServerOutput) -> bool:
        """Return whether the message fits one payload beside its Meta."""
        match message:
            case GlobalModel():
                size = 4 * message.params.numel()
            case Feedback(gradient=gradient):
                if gradient is None:
                    size = 0
                else:
                    size = 4 * gradient.numel()
            case Request():
                size = 4 * len(message.rows)
            case Roster():
                size = 8 * len(message.names)
            case Halt():
                size = 0
        return size <= self._chunk - 4096

    def receipt(self, edge: str, seq: int, receipt: pb.Receipt) -> None:
        """Send the receipt of message `seq` alone."""
        meta = pb.Meta(run=self._run, edge=edge, seq=seq, receipt=receipt)
        self._connection.publish(topics.down(self._run, edge, "receipt"), wire.encode(meta))

    def announce(self, epoch: int, state: str, model: GlobalModel) -> None:
        """Publish the run's state, retained, on the model topic.

        Edges that see a new epoch send again what has no receipt.
        """
        announcement = wire_down.announcement(
            self._run,
            epoch << 20 | self._connection.connects,
            state,
            model,
            self._schema,
            inline_below=self._chunk - 4096,
        )
        self._connection.publish(topics.model(self._run), announcement, retain=True)

    @property
    def _connection(self) -> ServerConnection:
        return self._link.connection
