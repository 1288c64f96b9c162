"""Journal entries as messages of the fold.

Some are what edges sent; halts, deadlines, releases and requests for inference are sent by no edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tacit.protocol import wire, wire_down, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Deadline, Halt, Hello, LiftQuarantine, Retired, Update
from tacit.protocol.messages import ServerInput as Message
from tacit.protocol.vertical import Request
from tacit_services.journal.store import Anchor, Stage
from tacit_services.transport.mqtt import Inbound

OPERATOR = "operator"  # the sender of what no edge sends


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decoded message on its way into the journal.

    Its integers, each worth `scale`, stay integers until then: `settled`. stage: where the store
    has its beginning already.
    """

    edge: str
    seq: int
    payload: bytes | memoryview  # nobody writes into it before `settled` is called
    message: Hello | Update | Retired
    anchor: Anchor  # where its sender's ledger stands
    inbound: Inbound
    scale: float = 0.0
    stage: Stage | None = None

    def settled(self) -> Hello | Update | Retired:
        """Return the message in real units, once the journal has it.

        Integers become so where they are: the payload is gone.
        """
        if not isinstance(self.message, Update):
            return self.message
        vector = wire_up.gradient_in_place(self.message.vector, self.scale)
        return replace(self.message, vector=vector, consumable=True)


@dataclass(frozen=True, slots=True)
class AppendBatch:
    """The messages that share one append. began: when the first was taken from the inbox."""

    candidates: list[Candidate]
    began: float


def halt(run: str, version: int, reason: str) -> bytes:
    """Return the entry that ends a run."""
    return wire.encode(
        pb.Meta(run=run, edge=OPERATOR, halt=pb.Halt(version=version, reason=reason))
    )


def deadline(run: str, number: int) -> bytes:
    """Return the entry that tells the role that its timer has run out."""
    return wire.encode(pb.Meta(run=run, edge=OPERATOR, deadline=pb.Deadline(number=number)))


def release(run: str, edge: str) -> bytes:
    """Return the entry that ends what the guard's sums hold against `edge`."""
    return wire.encode(pb.Meta(run=run, edge=OPERATOR, release=pb.Release(edge=edge)))


def request(run: str, message: Request) -> bytes:
    """Return the entry that asks a vertical run for embeddings of `message.rows` after its end."""
    meta = pb.Meta(run=run, edge=OPERATOR)
    wire_down.fill_vertical(meta, message)
    return wire.encode(meta)


def read(payload: bytes, schema: bytes, size: int, *, checked: bool = False) -> Message:
    """Return an entry's message to the server role.

    checked: as wire.decode takes it. Raises WireError.
    """
    return understood(wire.decode(payload, checked=checked), schema, size)


def understood(received: wire.Received, schema: bytes, size: int) -> Message:
    """Return `read` of what is decoded already. Raises WireError."""
    if received.meta.edge == OPERATOR:
        kind = received.meta.WhichOneof("kind")
        if kind == "deadline":
            return Deadline(received.meta.deadline.number)
        if kind == "release":
            return LiftQuarantine(received.meta.release.edge)
        if kind == "request":
            message = wire_down.read_vertical(received.meta, None)
            assert isinstance(message, Request)
            return message
        return Halt(received.meta.halt.version, received.meta.halt.reason)
    return wire_up.read_up(received, schema, size)
