"""An envelope in parts: each is one MQTT payload, and they may come in any order, and twice."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from itertools import islice

from tacit.errors import WireError
from tacit.protocol.envelope import Growing, GrowingMap, InPlace, Whole

PART_MAGIC = b"TCTP"
_PART = struct.Struct("<4sIIQQ")  # magic, number, how many parts, bytes of the envelope, offset
PART_HEADER = _PART.size
PART_COST = 200  # bytes of memory that a part costs beside its own, while one before it is missing
# Bytes of a message from which on it has memory of its own: a heap would keep what it has grown to.
LARGE = 1 << 20
HELD_BESIDE = 1 << 18  # bytes that an unfinished message may hold beyond twice its size

Envelope = bytes | mmap.mmap | InPlace


def count_parts(size: int, chunk: int) -> int:
    """Return how many MQTT payloads an envelope of `size` bytes takes.

    chunk: bytes of a payload at most, header included.
    """
    return max(1, -(-size // (chunk - PART_HEADER)))


def part(envelope: Envelope, chunk: int, number: int, front: bytes = b"") -> bytes:
    """Return the MQTT payload that holds part `number` of an envelope.

    chunk: its bytes at most, but for `front`, which comes before them.
    """
    room = chunk - PART_HEADER
    parts = count_parts(len(envelope), chunk)
    begin = number * room
    end = (number + 1) * room
    head = front + _PART.pack(PART_MAGIC, number, parts, len(envelope), begin)
    if isinstance(envelope, InPlace):
        return b"".join((head, *envelope.between(begin, end)))
    return b"".join((head, memoryview(envelope)[begin:end]))


def split(envelope: bytes, chunk: int) -> Iterator[bytes]:
    """Yield the MQTT payloads of an envelope, each of at most `chunk` bytes, header included."""
    return (part(envelope, chunk, number) for number in range(count_parts(len(envelope), chunk)))


def question(envelope: Envelope, chunk: int) -> bytes:
    """Return the payload that asks a receiver which parts of an envelope it lacks.

    It is a part without bytes.
    """
    return _PART.pack(PART_MAGIC, 0, count_parts(len(envelope), chunk), len(envelope), 0)


def read_question(payload: bytes | memoryview) -> tuple[int, int] | None:
    """Return (parts, total bytes) of the message that a question is about, or None.

    None: it is any other payload.
    """
    if len(payload) != _PART.size:
        return None
    magic, _, parts, total, _ = _PART.unpack(payload)
    if magic == PART_MAGIC and total:
        return (parts, total)
    return None


class Assembler:
    """Puts one message together from its parts, in any order, with duplicates.

    It takes memory for what has come, never for what is announced: `held` bytes, which are at most
    2 * max_bytes and HELD_BESIDE more.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        # The parts before number `_next`, one after the other.
        self._message: Whole = Growing()
        self._next = 0
        self._ahead: dict[int, tuple[int, bytes]] = {}  # later ones: where each begins, its bytes
        self._ahead_bytes = 0
        self.shape: tuple[int, int] | None = None  # parts, total bytes; None before the first part

    @property
    def received(self) -> int:
        """The number of different parts that have come."""
        return self._next + len(self._ahead)

    @property
    def held(self) -> int:
        """Bytes of memory that it takes, with what each part costs beside its bytes."""
        return self._message.filled + self._ahead_bytes

    @property
    def begun(self) -> memoryview:
        """The bytes before the first part that is missing, where the message is a long one.

        They stay as they are, and so does their place.
        """
        if isinstance(self._message, Growing):
            return memoryview(b"")
        return memoryview(self._message)[: self._message.filled]

    def missing(self, limit: int) -> list[int]:
        """Return the numbers of the first parts that have not come, at most `limit` of them."""
        if self.shape is None:
            parts = 0
        else:
            parts = self.shape[0]
        absent = (number for number in range(self._next, parts) if number not in self._ahead)
        return list(islice(absent, limit))

    def add(self, payload: bytes | memoryview) -> Whole | None:
        """Add a part; return the whole envelope once its last part has come, else None.

        Of equal parts the first counts. A question announces the message and adds nothing to it.
        Raises WireError (magic, length, size).
        """
        if len(payload) < _PART.size or payload[:4] != PART_MAGIC:
            raise WireError(
                "magic",
                f"a part of {len(payload)} bytes that does not begin with {PART_MAGIC.decode()}",
            )
        _, number, parts, total, offset = _PART.unpack_from(payload)
        if total > self._max:
            raise WireError("size", f"{total} bytes announced, {self._max} allowed")
        body = memoryview(payload)[_PART.size :]
        if not 1 <= parts <= total + 1 or number >= parts or offset + len(body) > total:
            raise WireError(
                "length", f"part {number} of {parts} at {offset} does not fit {total} bytes"
            )
        if self.shape is None:
            self.shape = (parts, total)
        if self.shape != (parts, total):
            raise WireError("length", "the parts of one message disagree on its size")
        if number >= self._next and number not in self._ahead and (body or not total):
            self._take(number, offset, body)
        if self._next < parts:
            return None
        return self._finished(total)

    def _take(self, number: int, offset: int, body: memoryview) -> None:
        if number > self._next:
            self._ahead[number] = offset, bytes(body)
            self._ahead_bytes += len(body) + PART_COST
            if self.held > 2 * self._max + HELD_BESIDE:
                raise WireError("size", f"{len(self._ahead)} parts that are far too small")
            return
        self._append(offset, body)
        while (ahead := self._ahead.pop(self._next, None)) is not None:
            self._ahead_bytes -= len(ahead[1]) + PART_COST
            self._append(*ahead)

    def _append(self, offset: int, body: bytes | memoryview) -> None:
        if offset != self._message.filled:
            raise WireError(
                "length", f"part {self._next} is for {offset}, the parts before it end elsewhere"
            )
        self._message.grow(body)
        self._next += 1
        if isinstance(self._message, Growing) and len(self._message) > LARGE and self.shape:
            self._message = GrowingMap.of(self._message, self.shape[1])

    def _finished(self, total: int) -> Whole:
        count = self._message.filled
        if count != total:
            raise WireError("length", f"all parts have {count} bytes, not {total}")
        return self._message
