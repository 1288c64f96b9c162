"""Messages of which not every part has come: bounded in number, in bytes and in age.

An edge has one unreceipted message at a time, so each has one unfinished message here at most: the
first part of a newer one makes the older one forgotten.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit_services.aggregator.ingest.retry import RetryLater
from tacit_services.transport.transfer import ANSWER_EVERY, MISSING

TTL = 60.0  # seconds without a new part after which an unfinished message is forgotten
TOTAL_BYTES = 1 << 31  # of all unfinished messages together


@dataclass(slots=True)
class _Open:
    """One unfinished message; `due`: its edge is to be told how it stands."""

    seq: int
    assembler: wire.Assembler
    heard: float
    due: bool = False


class Reassembly:
    """One assembler per edge.

    What a first part announces is set aside at once, hence the bounds.
    """

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self._limit = max(16, TOTAL_BYTES // max_message)
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, edge: str, seq: int, payload: bytes) -> bytearray | None:
        """The envelope when it is whole, else None.

        Raises WireError, which forgets the message, and RetryLater where too many messages are
        unfinished.
        """
        held = self._open.get(edge)
        question = wire.read_question(payload) if len(payload) == wire.PART_HEADER else None
        known = held is not None and held.seq == seq and question in (None, held.assembler.shape)
        mine = (
            held
            if held is not None and known
            else _Open(seq, wire.Assembler(self._max_message), time.monotonic())
        )
        if known:
            del self._open[edge]
        before = mine.assembler.received
        envelope = mine.assembler.add(payload)
        if envelope is not None:
            return envelope
        if not known and held is not None and seq < held.seq:
            return None  # a late part of a message that its edge has given up
        if not known and held is None and len(self._open) >= self._limit:
            raise RetryLater("busy", 1.0)
        received = mine.assembler.received
        if received > before:
            mine.heard = time.monotonic()
        mine.due = question is not None or (received > before and received % ANSWER_EVERY == 0)
        self._open[edge] = mine
        return None

    def answer(self, edge: str, seq: int) -> pb.Receipt | None:
        """What the edge is to be told after a part that did not complete its message.

        None: nothing yet.
        """
        held = self._open.get(edge)
        if held is None or held.seq != seq or not held.due:
            return None
        held.due = False
        return pb.Receipt(status=pb.Receipt.PARTIAL, missing=held.assembler.missing(MISSING))

    def expire(self) -> None:
        """Forget what has had no new part for longer than TTL."""
        latest = time.monotonic() - TTL
        for edge in [edge for edge, held in self._open.items() if held.heard < latest]:
            del self._open[edge]
