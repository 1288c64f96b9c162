"""Journal entries to messages of the fold: what edges sent, and halts and deadlines, which no edge sends."""

from __future__ import annotations

from dataclasses import dataclass

from services.runtime.mqtt import Inbound
from services.runtime.store import Anchor
from tacit import wire
from tacit._pb import wire_pb2 as pb
from tacit.messages import Deadline, Halt, Hello, Retired, Update
from tacit.messages import Entry as Message

OPERATOR = "operator"  # the sender of what no edge sends


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decoded message on its way into the journal."""

    edge: str
    seq: int
    payload: bytes
    message: Hello | Update | Retired
    anchor: Anchor
    inbound: Inbound


def halt(run: str, version: int, reason: str) -> bytes:
    """The entry that ends a run."""
    return wire.encode(pb.Meta(run=run, edge=OPERATOR, halt=pb.Halt(version=version, reason=reason)))


def deadline(run: str, number: int) -> bytes:
    """The entry that tells the role that its timer has run out."""
    return wire.encode(pb.Meta(run=run, edge=OPERATOR, deadline=pb.Deadline(number=number)))


def read(payload: bytes, schema: bytes, size: int) -> Message:
    """What an entry means to the server role. Raises WireError."""
    received = wire.decode(payload)
    if received.meta.edge == OPERATOR:
        if received.meta.WhichOneof("kind") == "deadline":
            return Deadline(received.meta.deadline.number)
        return Halt(received.meta.halt.version, received.meta.halt.reason)
    return wire.read_up(received, schema, size)
