"""A sniffer on a site's cable: every byte that its processes sent, and what it says inside TLS.

It hears as somebody with a tap on the cable does (AF_PACKET), changes nothing, and answers nobody.
The site's processes write down the secrets of their connections (KEY_LOG), as a browser does for
Wireshark. By these, what they said is read afterwards: the MQTT packets, the updates in them.
"""

from __future__ import annotations

import socket
import struct
import threading
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.namespaces import Site
from tests.helpers.tls_records import RecordReader

# A module for a `.pth` file of an environment: every TLS connection leaves its secrets in a file.
KEY_LOG = """\
import os
import ssl

if place := os.environ.get("SSLKEYLOGFILE"):
    begun = ssl.SSLContext.__new__

    def logging(cls, *arguments, **more):
        context = begun(cls, *arguments, **more)
        context.keylog_filename = place
        return context

    ssl.SSLContext.__new__ = logging
"""
_LARGEST = 1 << 17  # bytes of a packet: the kernel cuts what is longer than the cable takes later
_BUFFER = 64 << 20
_TIMESTAMPS = 35  # SO_TIMESTAMPNS
_PACKET_LEVEL, _STATISTICS = 263, 6  # SOL_PACKET, PACKET_STATISTICS
_SYN, _ANY = 0x02, 3
_PUBLISH = 3


@dataclass(frozen=True, slots=True)
class Publication:
    """An MQTT message that left, and when: seconds since 1970."""

    at: float
    topic: str
    payload: bytes

    @property
    def run(self) -> str:
        """The run that it is of; "" where it is of none."""
        levels = self.topic.split("/")
        return levels[2] if levels[:2] == ["tacit", "v1"] else ""


@dataclass
class _Stream:
    """All that one side of a TCP connection sent."""

    start: int  # the number of its first byte
    pieces: dict[int, tuple[float, bytes]] = field(default_factory=dict)

    def add(self, number: int, at: float, data: bytes) -> None:
        offset = (number - self.start) % (1 << 32)
        known = self.pieces.get(offset)
        if known is None or len(known[1]) < len(data):
            self.pieces[offset] = (at, data)

    def whole(self) -> tuple[bytes, list[int], list[float]]:
        """Return the bytes in order; and of each piece where it ends, and when it left."""
        data, ends, times = bytearray(), list[int](), list[float]()
        for offset, (at, piece) in sorted(self.pieces.items()):
            assert offset <= len(data), "the sniffer has lost bytes"
            if more := piece[len(data) - offset :]:
                data += more
                ends.append(len(data))
                times.append(at)
        return bytes(data), ends, times


class Sniffer:
    """The sniffer at one site, from `start` to `stop`."""

    def __init__(self, site: Site, key_log: Path) -> None:
        """key_log: the file in which the site's processes write the secrets of connections."""
        self._key_log = key_log
        self._socket = site.inside(lambda: _tap(site.cable))
        self._streams: list[_Stream] = []
        self._open: dict[tuple[int, int], _Stream] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._lost = 0  # packets

    def start(self) -> None:
        """Listen from now on."""
        self._thread.start()

    def close(self) -> None:
        """Listen no more. Idempotent."""
        self._end.set()
        self._thread.join()
        self._socket.close()

    def check(self) -> None:
        """Raise AssertionError where it has not heard every packet."""
        assert self._thread.is_alive(), "the sniffer has ended"
        statistics = self._socket.getsockopt(_PACKET_LEVEL, _STATISTICS, 8)
        self._lost += struct.unpack("II", statistics)[1]  # since it was asked last
        assert self._lost == 0, "the sniffer was too slow"

    def publications(self) -> list[Publication]:
        """Return every MQTT message that has left up to now, in order, copies included."""
        with self._lock:
            streams = [stream.whole() for stream in self._streams]
        secrets = self._key_log.read_text() if self._key_log.exists() else ""
        reader = RecordReader(secrets)
        published = [
            publication
            for data, ends, times in streams
            for publication in _publications(reader, data, ends, times)
        ]
        return sorted(published, key=lambda publication: publication.at)

    def updates(self) -> set[tuple[str, int]]:
        """Return the run and the sender's number of every update that has left."""
        metas = map(_meta, self.publications())
        return {(meta.run, meta.seq) for meta in metas if meta and meta.HasField("update")}

    def _listen(self) -> None:
        self._socket.settimeout(0.2)
        while not self._end.is_set():
            try:
                data, ancillary, _, address = self._socket.recvmsg(_LARGEST, 256)
            except TimeoutError:
                continue
            if address[2] == socket.PACKET_OUTGOING:
                self._take(data, _time(ancillary))

    def _take(self, packet: bytes, at: float) -> None:
        head = packet[14:]
        if packet[12:14] != b"\x08\x00" or head[9] != socket.IPPROTO_TCP:
            return
        length = struct.unpack(">H", head[2:4])[0] or len(head)
        segment = head[4 * (head[0] & 15) : length]
        source, target, number = struct.unpack(">HHI", segment[:8])
        key, payload = (source, target), segment[4 * (segment[12] >> 4) :]
        with self._lock:
            if segment[13] & _SYN and key not in self._open:
                self._open[key] = _Stream((number + 1) % (1 << 32))
                self._streams.append(self._open[key])
            elif segment[13] & _SYN and self._open[key].start != (number + 1) % (1 << 32):
                self._open[key] = _Stream((number + 1) % (1 << 32))  # the port is used again
                self._streams.append(self._open[key])
            if payload:
                self._open[key].add(number, at, payload)


def _tap(interface: str) -> socket.socket:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    tap.setsockopt(socket.SOL_SOCKET, 33, _BUFFER)  # SO_RCVBUFFORCE
    tap.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
    tap.bind((interface, _ANY))  # ETH_P_ALL, from now on: with what leaves
    return tap


def _time(ancillary: list[tuple[int, int, bytes]]) -> float:
    """Return the kernel's own time of a packet: the thread may read it later."""
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == _TIMESTAMPS:
            seconds, nanoseconds = struct.unpack("qq", content)
            return float(seconds) + float(nanoseconds) / 1e9
    raise AssertionError("a packet without its time")


def _publications(
    reader: RecordReader, data: bytes, ends: list[int], times: list[float]
) -> Iterator[Publication]:
    """Yield the MQTT messages in one side of a connection; nothing where it speaks HTTP."""
    spoken, places = bytearray(), list[tuple[int, int]]()
    for end, text in reader.said(data):
        spoken += text
        places.append((len(spoken), end))
    if spoken[:1] != b"\x10":  # MQTT begins with CONNECT
        return
    starts = [place for place, _ in places]
    at = 0
    while (packet := _packet(spoken, at)) is not None:
        kind, begin, end = packet
        if kind >> 4 == _PUBLISH:
            raw = places[bisect_left(starts, end)][1]
            yield _published(times[bisect_left(ends, raw)], kind, bytes(spoken[begin:end]))
        at = end


def _packet(spoken: bytearray, at: int) -> tuple[int, int, int] | None:
    """Return the first byte, begin and end of the packet at `at`; None: it did not leave whole."""
    size, shift, place = 0, 0, at + 1
    while place < len(spoken):
        size |= (spoken[place] & 127) << shift
        shift += 7
        place += 1
        if spoken[place - 1] < 128:
            return (spoken[at], place, place + size) if place + size <= len(spoken) else None
    return None


def _published(at: float, kind: int, body: bytes) -> Publication:
    length = int.from_bytes(body[:2], "big")
    number = 2 if kind >> 1 & 3 else 0  # of the packet, where it has one
    return Publication(at, body[2 : 2 + length].decode(), body[2 + length + number :])


def _meta(publication: Publication) -> pb.Meta | None:
    """Return what a message of one part says; None where it is none, or a question."""
    if "/up/" not in publication.topic:
        return None
    _, part = topics.read_numbered(0, publication.payload)
    if wire.read_question(part) is not None:
        return None
    envelope = wire.Assembler(1 << 24).add(bytes(part))
    assert envelope is not None, "an update of several parts"
    return wire.decode(envelope).meta
