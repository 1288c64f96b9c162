"""A member of a run that means harm below its messages: with fields, flags and states of MQTT that
no honest client uses, and that a broker must hand on, or keep.

`PacketMember` is one name with its certificate; `PACKET_BEHAVIOURS` are what it does, by name. As a
process it does them in turn until it is ended:

    python -m tests.helpers.hostile_packets BROKER RUN_ID edge-4 [--bundle FOLDER] [--only NAME]...
"""

from __future__ import annotations

import argparse
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tacit_services.transport.tls import Tls

from tacit.protocol import topics, wire
from tests.helpers import packets
from tests.helpers.packets import Packets, pair

WHOLE = 262_000  # bytes of a packet, about as many as a broker of compose.yaml takes
KEPT = packets.SESSION_EXPIRY + packets.FOR_EVER
AT_ONCE = 40  # packets of one round
TRIES = 50  # to connect
READS_NOTHING = 2.0  # seconds of a connection that sends, and reads nothing


def tiny(size: int) -> bytes:
    """Return user properties of one byte each, as many as fit into `size` bytes."""
    each = pair(b"a", b"b")
    return each * (size // len(each))


def large(size: int, each: int = 16_000) -> bytes:
    """Return user properties of `each` bytes, as many as fit into `size` bytes."""
    user_property = pair(b"n", bytes(each).replace(b"\x00", b"v"))
    return user_property * (size // len(user_property))


class PacketMember:
    """One name of a run at a broker on loopback; each method is one round of something."""

    def __init__(
        self, port: int, run_id: str, edge: str, tls: Tls | None = None, to: str | None = None
    ) -> None:
        """Take the settings of a member; `to` is the peer that it sends to (None: the aggregator)."""
        self._port, self._edge, self._tls = port, edge, tls
        self.up = topics.up_numbered(run_id, edge)
        if to is not None:
            self.up = topics.peer_numbered(run_id, to, edge)
        self.presence = topics.presence(run_id, edge)
        self.own = topics.down_all(run_id, edge), topics.model(run_id)

    @contextmanager
    def connected(
        self, *, level: int = 5, session: bytes = b"", will: tuple[str, bytes, bytes] | None = None
    ) -> Iterator[Packets]:
        """Yield a connection that takes the place of the last one; a broker may close it."""
        with suppress(OSError), self._joined(level, session, will) as connection:
            yield connection

    def _joined(self, level: int, session: bytes, will: tuple[str, bytes, bytes] | None) -> Packets:
        for _ in range(TRIES):
            with suppress(OSError):
                return Packets(
                    self._port, self._edge, tls=self._tls, level=level, session=session, will=will
                )
            threading.Event().wait(0.2)  # its broker is busy
        raise RuntimeError(f"{self._edge}: not connected")

    def act(self, name: str) -> None:
        """Do one round of the behaviour `name`."""
        getattr(self, name)()

    # -- fields that a broker must hand on ---------------------------------------------------------

    def many_properties(self) -> None:
        """Send as many user properties as there is room for, with next to no payload."""
        for size in (700_000, WHOLE, WHOLE // 16):
            with self.connected() as member:
                for _ in range(AT_ONCE):
                    member.publish(self.up, b"x", properties=tiny(size))

    def large_properties(self) -> None:
        """Send properties of some KB, in every way in which a message may be sent, and retained."""
        for topic in (self.up, self.presence):
            for qos, retain in ((0, False), (1, False), (0, True), (1, True)):
                with self.connected() as member:
                    for _ in range(AT_ONCE):
                        member.publish(topic, b"x", properties=large(WHOLE), qos=qos, retain=retain)

    def other_fields(self) -> None:
        """Send every other property that a PUBLISH may have, as long as it may be."""
        long = packets.text(b"t" * 60_000)
        fields = (
            packets.RESPONSE_TOPIC + long,
            packets.CORRELATION_DATA + packets.text(bytes(60_000)),
            packets.CONTENT_TYPE + long,
            packets.PAYLOAD_FORMAT + b"\x01" + packets.MESSAGE_EXPIRY + packets.FOR_EVER,
        )
        with self.connected() as member:
            for _ in range(AT_ONCE):
                member.publish(self.up, b"x", properties=b"".join(fields) + tiny(50_000), qos=1)

    def topic_aliases(self) -> None:
        """Send a number in place of a topic, and a number that was never defined."""
        for number in (1, 10, 65_535, 0):
            with self.connected() as member:
                alias = packets.TOPIC_ALIAS + number.to_bytes(2, "big")
                member.publish(self.up, b"x", properties=alias)
                for _ in range(AT_ONCE):
                    member.publish("", b"x", properties=alias + tiny(WHOLE // 4))

    def wills(self) -> None:
        """Leave messages for after its death, large and with a delay, and die again and again."""
        delays = (b"", packets.WILL_DELAY + packets.FOR_EVER, packets.WILL_DELAY + bytes(3) + b"\1")
        for delay in delays:
            for topic in (self.presence, self.up):
                will = topic, bytes(60_000), delay + tiny(WHOLE // 2)
                # mosquitto 2.0.21 refuses a few of them, which 2.0.11 takes
                with suppress(RuntimeError), self.connected(session=KEPT, will=will) as member:
                    member.ping()

    def identifiers(self) -> None:
        """Renew its subscriptions over and over, with a number each, which the broker sends back."""
        with self.connected() as member:
            for number in range(1, 20 * AT_ONCE):
                identifier = packets.SUBSCRIPTION_ID + packets.number(number)
                member.subscribe(*self.own, properties=identifier + tiny(1000))

    # -- states that a broker must keep ------------------------------------------------------------

    def never_released(self) -> None:
        """Begin QoS 2 and never finish it, large and small, in a session that is to be kept."""
        for level in (5, 4):
            for payload in (bytes(WHOLE), b"x"):
                with self.connected(level=level, session=KEPT if level == 5 else b"") as member:
                    for _ in range(AT_ONCE):
                        member.publish(self.up, payload, qos=2)

    def never_acknowledged(self) -> None:
        """Ask for messages, and neither read nor acknowledge them."""
        question = struct.pack("<4sIIQQ", wire.PART_MAGIC, 0, 5, 5000, 0)
        for level in (5, 4):
            with self.connected(level=level) as member:
                member.subscribe(*self.own)
                until, number = time.monotonic() + READS_NOTHING, time.time_ns() // 1000
                while time.monotonic() < until:
                    number += 1
                    member.publish(self.up, topics.numbered(number % 2**50, question), qos=1)

    def half_packets(self) -> None:
        """Send packets that announce a length, and are not sent to their end."""
        with self.connected() as member:
            member.send(b"\x32" + packets.number(WHOLE) + bytes(100))
            member.read(0.2)
        with self.connected() as member:
            member.send(b"\x32" + packets.number(2**28 - 1) + bytes(100))
            member.read(0.2)

    # -- messages without anything in them ---------------------------------------------------------

    def empty(self) -> None:
        """Send messages of no byte, as fast as possible, on its topic and as presence."""
        for topic, qos, retain in (
            (self.up, 0, False),
            (self.presence, 0, True),
            (self.up, 1, True),
        ):
            with self.connected(level=4) as member:
                for _ in range(50 * AT_ONCE):
                    member.publish(topic, qos=qos, retain=retain)


PACKET_BEHAVIOURS = (
    "many_properties",
    "large_properties",
    "other_fields",
    "topic_aliases",
    "wills",
    "identifiers",
    "never_released",
    "never_acknowledged",
    "half_packets",
    "empty",
)


def main() -> None:
    """Run a hostile member as a process."""
    parser = argparse.ArgumentParser()
    for name in ("broker", "run_id", "edge"):
        parser.add_argument(name)
    parser.add_argument("--only", action="append", choices=PACKET_BEHAVIOURS, default=[])
    parser.add_argument("--bundle", type=Path, help="folder with ca.crt, tls.crt and tls.key")
    arguments = parser.parse_args()
    bundle = arguments.bundle
    tls = bundle and Tls(bundle / "ca.crt", bundle / "tls.crt", bundle / "tls.key")
    port = int(arguments.broker.rpartition(":")[2])
    member = PacketMember(port, arguments.run_id, arguments.edge, tls)
    with member.connected():
        print("begins", flush=True)  # noqa: T201  (who waits for it reads that)
    while True:
        for name in arguments.only or PACKET_BEHAVIOURS:
            member.act(name)
            print("did", name, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
