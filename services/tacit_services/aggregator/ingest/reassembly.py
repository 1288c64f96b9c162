"""Messages of which not every part has come: bounded in number, in bytes and in age.

An edge has one unreceipted message at a time, so each has one unfinished message here at most: the
first part of a newer one makes the older one forgotten. Only the run's names come as far as this,
so there are never more messages than names. What counts is what has come, not what is announced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit_services.aggregator.ingest.receipts import RetryLater
from tacit_services.transport.transfer import ANSWER_EVERY, MISSING

TTL = 60.0  # seconds without a new part after which an unfinished message is forgotten
# Of all unfinished messages together, before an edge is told to wait. One that holds less than its
# even share is never told so: all together hold twice this at most.
TOTAL_BYTES = 1 << 30


@dataclass(slots=True)
class _Open:
    """One unfinished message; `due`: its edge is to be told which parts are missing."""

    seq: int
    assembler: wire.Assembler
    heard: float
    due: bool = False


class Reassembly:
    """The parts of unfinished messages, with one assembler for each edge."""

    def __init__(
        self,
        max_message: int,
        names: int = 1,
        total: int = TOTAL_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """names: how many edges there can be."""
        self.max_message = max_message
        self._total = total
        self._clock = clock
        self._share = total // names
        self._open: dict[str, _Open] = {}
        self._bytes = 0  # bytes, of all

    def __len__(self) -> int:
        return len(self._open)

    @property
    def held(self) -> int:
        """Bytes of memory that unfinished messages take."""
        return self._bytes

    def add(self, edge: str, seq: int, payload: bytes | memoryview) -> wire.Whole | None:
        """Return the envelope when it is whole, else None.

        Raises WireError, which forgets the message, and RetryLater where unfinished messages take
        too much; then what came of this one before is kept.
        """
        partial = self._open.get(edge)
        if len(payload) == wire.PART_HEADER:
            question = wire.read_question(payload)
        else:
            question = None
        continues = (
            partial is not None
            and partial.seq == seq
            and question in (None, partial.assembler.shape)
        )
        if partial is not None and continues:
            message = partial
        else:
            message = _Open(seq, wire.Assembler(self.max_message), self._clock())
        before = message.assembler.received
        had = message.assembler.held
        if continues:
            self._make_room(edge, had, len(payload) + wire.PART_COST)
            self._forget(edge)
        envelope = message.assembler.add(payload)
        if envelope is not None:
            return envelope
        if not continues and partial is not None and seq < partial.seq:
            return None  # a late part of a message that its edge has given up
        if not continues:
            self._make_room(edge, 0, message.assembler.held)
            self._forget(edge)
        received = message.assembler.received
        if received > before:
            message.heard = self._clock()
        message.due = question is not None or (received > before and received % ANSWER_EVERY == 0)
        self._open[edge] = message
        self._bytes += message.assembler.held
        return None

    def _make_room(self, edge: str, occupied: int, more: int) -> None:
        """occupied: bytes that the edge holds, and will still hold beside `more`."""
        partial = self._open.get(edge)
        others = self._bytes - (0 if partial is None else partial.assembler.held)
        if others + occupied + more > self._total and occupied + more > self._share:
            raise RetryLater("busy", 1.0)

    def _forget(self, edge: str) -> None:
        if (partial := self._open.pop(edge, None)) is not None:
            self._bytes -= partial.assembler.held

    def answer(self, edge: str, seq: int) -> pb.Receipt | None:
        """Return the answer to a part that did not complete its message; None: no answer yet.

        None: nothing yet.
        """
        partial = self._open.get(edge)
        if partial is None or partial.seq != seq or not partial.due:
            return None
        partial.due = False
        return pb.Receipt(status=pb.Receipt.PARTIAL, missing=partial.assembler.missing(MISSING))

    def begun(self, edge: str, seq: int) -> memoryview | None:
        """Return what has come of message `seq` from its first byte on, once that is long.

        None: it is not the edge's unfinished one.
        """
        partial = self._open.get(edge)
        if partial is None or partial.seq != seq:
            return None
        return partial.assembler.begun

    def expire(self) -> list[str]:
        """Forget what has had no new part for longer than TTL; return whose it was."""
        latest = self._clock() - TTL
        expired = [edge for edge, partial in self._open.items() if partial.heard < latest]
        for edge in expired:
            self._forget(edge)
        return expired
