"""Journal entries to messages of the fold: what edges sent, and halts, which no edge sends."""

from __future__ import annotations

from dataclasses import dataclass

from services.runtime.mqtt import Inbound
from services.runtime.store import Anchor
from tacit import wire
from tacit._pb import wire_pb2 as pb
from tacit.messages import Halt, Hello, Retired, Update

OPERATOR = "operator"  # the sender of a halt


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


def read(payload: bytes, schema: bytes, size: int) -> Hello | Update | Retired | Halt:
    """What an entry means to the server role. Raises WireError."""
    received = wire.decode(payload)
    if received.meta.edge == OPERATOR:
        return Halt(received.meta.halt.version, received.meta.halt.reason)
    return wire.read_up(received, schema, size)
