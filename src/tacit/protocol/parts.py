"""An envelope in parts: each is one MQTT payload, and they may come in any order, and twice."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tacit.errors import WireError

PART_MAGIC = b"TCTP"
_PART = struct.Struct("<4sIIQQ")  # magic, number, how many parts, bytes of the envelope, offset
PART_HEADER = _PART.size


def count_parts(size: int, chunk: int) -> int:
    """How many MQTT payloads an envelope of `size` bytes takes.

    chunk: bytes of a payload at most, header included.
    """
    return max(1, -(-size // (chunk - PART_HEADER)))


def part(envelope: bytes, chunk: int, number: int) -> bytes:
    """The MQTT payload that holds part `number` of an envelope."""
    room = chunk - PART_HEADER
    body = envelope[number * room : (number + 1) * room]
    return (
        _PART.pack(
            PART_MAGIC, number, count_parts(len(envelope), chunk), len(envelope), number * room
        )
        + body
    )


def split(envelope: bytes, chunk: int) -> Iterator[bytes]:
    """The MQTT payloads of an envelope, each of at most `chunk` bytes, header included."""
    return (part(envelope, chunk, number) for number in range(count_parts(len(envelope), chunk)))


def question(envelope: bytes, chunk: int) -> bytes:
    """The payload that asks a receiver which parts of an envelope it lacks.

    It is a part without bytes.
    """
    return _PART.pack(PART_MAGIC, 0, count_parts(len(envelope), chunk), len(envelope), 0)


def read_question(payload: bytes) -> tuple[int, int] | None:
    """(parts, total bytes) of the message that a question is about; None for any other payload."""
    if len(payload) != _PART.size:
        return None
    magic, _, parts, total, _ = _PART.unpack(payload)
    return (parts, total) if magic == PART_MAGIC and total else None


class Assembler:
    """One message that is put together from its parts, in any order, with duplicates.

    Guarantee: it holds at most `max_bytes`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._buffer = bytearray()
        # One byte per part; a set of numbers would need 60 times the announced bytes.
        self._seen = bytearray()
        self._missing = 0
        self.shape: tuple[int, int] | None = None  # parts, total bytes; None before the first part

    @property
    def received(self) -> int:
        """How many parts have come, each counted once."""
        return len(self._seen) - self._missing

    def missing(self, limit: int) -> list[int]:
        """The numbers of the first parts that have not come, at most `limit` of them."""
        found: list[int] = []
        at = self._seen.find(0)
        while at >= 0 and len(found) < limit:
            found.append(at)
            at = self._seen.find(0, at + 1)
        return found

    def add(self, payload: bytes) -> bytearray | None:
        """The whole envelope once its last part has come, else None; of equal parts the first
        counts.

        A question announces the message and adds nothing to it.
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
            self.shape, self._missing = (parts, total), parts
            self._buffer, self._seen = bytearray(total), bytearray(parts)
        if self.shape != (parts, total):
            raise WireError("length", "the parts of one message disagree on its size")
        if not self._seen[number] and (body or not total):
            self._seen[number], self._missing = 1, self._missing - 1
            self._buffer[offset : offset + len(body)] = body
        return None if self._missing else self._buffer
