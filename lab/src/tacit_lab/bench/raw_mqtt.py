"""MQTT 3.1.1 as bytes, for a process that plays ten thousand clients: paho's loop is a `select`,
which ends at 1,024 descriptors. OASIS, MQTT Version 3.1.1, sections 2 and 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

CONNACK = 2
PUBLISH = 3
PUBACK = 4
SUBACK = 9


def _packet(first: int, body: bytes) -> bytes:
    length = b""
    remaining = len(body)
    while True:
        remaining, digit = remaining >> 7, remaining & 127
        length += bytes([digit | (128 if remaining else 0)])
        if not remaining:
            return bytes([first]) + length + body


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def connect(client: str) -> bytes:
    """Return a CONNECT with a clean session and no keep-alive."""
    return _packet(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + _text(client))


def subscribe(number: int, topics: list[str]) -> bytes:
    """Return a SUBSCRIBE at QoS 1."""
    return _packet(0x82, struct.pack(">H", number) + b"".join(_text(t) + b"\x01" for t in topics))


def publish(number: int, topic: str, payload: bytes, *, retain: bool = False) -> bytes:
    """Return a PUBLISH at QoS 1."""
    return _packet(0x32 | retain, _text(topic) + struct.pack(">H", number) + payload)


def puback(number: int) -> bytes:
    """Return a PUBACK."""
    return b"\x40\x02" + struct.pack(">H", number)


class PacketReader:
    """Packets out of a stream of bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Return (first byte, body) of every packet that is whole now."""
        self._buffer += data
        at = 0
        packets = []
        while (end := self._end(at)) is not None:
            start, stop = end
            packets.append((self._buffer[at], memoryview(bytes(self._buffer[start:stop]))))
            at = stop
        del self._buffer[:at]
        return iter(packets)

    def _end(self, at: int) -> tuple[int, int] | None:
        """Return where the body of the packet at `at` begins and ends; None: it is incomplete."""
        size = 0
        shift = 0
        for offset in range(at + 1, min(at + 5, len(self._buffer))):
            digit = self._buffer[offset]
            size = size | (digit & 127) << shift
            shift = shift + 7
            if digit < 128:
                stop = offset + 1 + size
                if stop <= len(self._buffer):
                    return (offset + 1, stop)
                return None
        return None


def read_publish(first: int, body: memoryview) -> tuple[str, int, memoryview]:
    """Return topic, packet number (0 at QoS 0) and payload of a PUBLISH."""
    length = int.from_bytes(body[:2], "big")
    topic = bytes(body[2 : 2 + length]).decode()
    at = 2 + length
    if not first & 0x06:
        return topic, 0, body[at:]
    return topic, int.from_bytes(body[at : at + 2], "big"), body[at + 2 :]
