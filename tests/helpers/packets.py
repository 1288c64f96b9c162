"""MQTT packets made by hand, for what no client library sends: any field, any flag, no answer.

`Packets` is one connection, which acknowledges nothing and reads only when it is told to. Its
broker may be plain, or one of compose.yaml, where the certificate's name is the client's.
"""

from __future__ import annotations

import itertools
import socket
import ssl
from types import TracebackType

from tacit_services.transport.tls import Tls

from tests.helpers.servers import HOST, PATIENCE

# Properties of MQTT 5, by their identifiers.
PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC = b"\x01", b"\x02", b"\x03", b"\x08"
CORRELATION_DATA, SUBSCRIPTION_ID, SESSION_EXPIRY = b"\x09", b"\x0b", b"\x11"
WILL_DELAY, TOPIC_ALIAS, USER_PROPERTY = b"\x18", b"\x23", b"\x26"
FOR_EVER = b"\xff\xff\xff\xff"


def text(content: bytes) -> bytes:
    """Return `content` behind its length in two bytes."""
    return len(content).to_bytes(2, "big") + content


def pair(name: bytes, value: bytes) -> bytes:
    """Return a user property."""
    return USER_PROPERTY + text(name) + text(value)


def number(value: int) -> bytes:
    """Return a variable byte integer."""
    encoded = bytearray()
    while True:
        value, low = divmod(value, 128)
        encoded.append(low | (128 if value else 0))
        if not value:
            return bytes(encoded)


def packet(kind: int, body: bytes) -> bytes:
    """Return an MQTT packet; `kind` is its first byte: type and flags."""
    return bytes([kind]) + number(len(body)) + body


class Packets:
    """A connection to a broker at HOST, of MQTT 5 or (level 4) 3.1.1; closed at the block's end."""

    def __init__(
        self,
        port: int,
        name: str,
        *,
        tls: Tls | None = None,
        level: int = 5,
        session: bytes = b"",
        will: tuple[str, bytes, bytes] | None = None,
    ) -> None:
        """Connect; `session` has properties of CONNECT, `will` its topic, payload and properties."""
        self.level, self._mids = level, itertools.cycle(range(1, 65536))
        raw = socket.create_connection((HOST, port), timeout=PATIENCE)
        self._socket = tls.context().wrap_socket(raw, server_hostname=HOST) if tls else raw
        flags = 0x02 if will is None else 0x02 | 0x04 | 0x08 | 0x20
        body = text(b"MQTT") + bytes([level, flags]) + (60).to_bytes(2, "big")
        body += self._properties(session) + text(name.encode())
        if will is not None:
            topic, payload, properties = will
            body += self._properties(properties) + text(topic.encode()) + text(payload)
        self.send(packet(0x10, body))
        answer = self._socket.recv(4)
        if answer[:1] != b"\x20" or answer[3:4] != b"\x00":
            raise ConnectionError(f"CONNECT was answered with {answer.hex()}")

    def __enter__(self) -> Packets:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket without a DISCONNECT, so that the broker publishes the will."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send these bytes. Raise OSError where the broker has closed."""
        self._socket.sendall(data)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        properties: bytes = b"",
        qos: int = 0,
        retain: bool = False,
    ) -> None:
        """Send a PUBLISH; the answer is not read."""
        body = text(topic.encode()) + (next(self._mids).to_bytes(2, "big") if qos else b"")
        kind = 0x30 | qos << 1 | retain
        self.send(packet(kind, body + self._properties(properties) + payload))

    def subscribe(self, *filters: str, qos: int = 1, properties: bytes = b"") -> None:
        """Send a SUBSCRIBE; the answer is not read."""
        body = next(self._mids).to_bytes(2, "big") + self._properties(properties)
        entries = b"".join(text(name.encode()) + bytes([qos]) for name in filters)
        self.send(packet(0x82, body + entries))

    def ping(self) -> None:
        """Send a PINGREQ."""
        self.send(b"\xc0\x00")

    def read(self, seconds: float = PATIENCE) -> bytes:
        """Return the bytes that have come; b"" where the broker has closed the connection."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            return b""

    def closed(self) -> bool:
        """Check whether the broker closes the connection, once all that it sent has been read."""
        try:
            while self.read():
                pass
        except TimeoutError:
            return False
        return True

    def _properties(self, content: bytes) -> bytes:
        return number(len(content)) + content if self.level == 5 else b""
