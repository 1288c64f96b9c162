"""A crowd of edges in one process, on raw sockets: `python -m tacit_lab.bench.crowd_edges edges
JSON`.

They join, and report it. Then, at a line on standard input, each pushes ready-made updates when it
has its task. The rate is that of all edges together. The last line is JSON.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tacit_services.transport.address import split_host_port
from torch import Tensor

from tacit import config
from tacit.digests import canonical
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit_lab.bench import raw_mqtt

RUN = "bench"
PATIENCE = 30.0  # seconds without a receipt after which a message is sent again, as edges do
CHUNK = 1 << 18
AT_ONCE = 200  # connections that are being made at a time


@dataclass(slots=True)
class CrowdEdge:
    """One client. sent: when its latest message went out first; 0: it has its receipt."""

    name: str
    sock: socket.socket
    reader: raw_mqtt.PacketReader = field(default_factory=raw_mqtt.PacketReader)
    out: bytearray = field(default_factory=bytearray)
    seq: int = 0
    sent: float = 0.0
    again: float = 0.0
    message: bytes = b""
    version: int | None = None  # of the task that it has
    joined: bool = False


class Crowd:
    """All of them."""

    def __init__(self, broker: str, run_file: Path, count: int) -> None:
        self._address = split_host_port(broker)
        run = config.load(run_file)
        model = run.build_model()
        self._schema = model.schema_hash()
        plan = run.plan(0)
        self._body = torch.full((model.size,), 1e-6)
        self._definition = canonical(run.agreed())
        self._spend = (plan.sampling_rate, plan.noise_multiplier)
        self._count = count
        self._selector = selectors.DefaultSelector()
        self.edges = list[CrowdEdge]()
        self.ready: deque[CrowdEdge] = deque()  # those that have a task
        self.waits: list[float] = []  # seconds from push to receipt
        self.resent = 0
        self.joined = 0

    def join(self, seconds: float) -> float:
        """Wait until every edge has the receipt of its Hello; return the seconds."""
        began = time.monotonic()
        while self.joined < self._count:
            while len(self.edges) < min(self._count, self.joined + AT_ONCE):
                self._connect(f"edge-{len(self.edges)}")
            self.turn(0.05)
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"{self.joined} of {self._count} have joined")
        return time.monotonic() - began

    def push(self, rate: float, seconds: float) -> int:
        """Push at `rate` a second for so long, then wait for the last receipts; how many."""
        began = time.monotonic()
        pushed = 0
        while (now := time.monotonic()) - began < seconds:
            while self.ready and pushed < rate * (now - began):
                self._update(self.ready.popleft())
                pushed += 1
            self.turn(0.002)
        deadline = time.monotonic() + PATIENCE
        while any(edge.sent for edge in self.edges) and time.monotonic() < deadline:
            self.turn(0.05)
        return pushed

    def turn(self, seconds: float) -> None:
        """Read and write what can be, and send again what has waited for too long."""
        for key, events in self._selector.select(seconds):
            edge: CrowdEdge = key.data
            if events & selectors.EVENT_READ:
                self._read(edge)
            if edge.out:
                self._write(edge)
        if self.edges:
            self._repeat(self.edges[int(time.monotonic() * 1e3) % len(self.edges)])

    def _repeat(self, edge: CrowdEdge) -> None:
        now = time.monotonic()
        if edge.sent and now - edge.again > PATIENCE:
            edge.again = now
            self.resent += 1
            self._say(edge, edge.message)

    def _connect(self, name: str) -> None:
        sock = socket.create_connection(self._address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        edge = CrowdEdge(name, sock)
        self.edges.append(edge)
        self._selector.register(sock, selectors.EVENT_READ, edge)
        mine = [topics.down_all(RUN, name), topics.model(RUN)]
        self._send(edge, raw_mqtt.connect(f"{RUN}-{name}") + raw_mqtt.subscribe(1, mine))

    def _read(self, edge: CrowdEdge) -> None:
        data = edge.sock.recv(1 << 18)
        if not data:
            raise ConnectionError(f"the broker has disconnected {edge.name}")
        for first, body in edge.reader.feed(data):
            kind = first >> 4
            if kind == raw_mqtt.SUBACK:
                self._hello(edge)
            elif kind == raw_mqtt.PUBLISH:
                topic, number, payload = raw_mqtt.read_publish(first, body)
                self._send(edge, raw_mqtt.puback(number))
                self._hear(edge, topic, payload)

    def _hear(self, edge: CrowdEdge, topic: str, payload: memoryview) -> None:
        if "/down/" not in topic:
            return
        meta = _meta(payload if payload[:4] == wire.MAGIC else payload[wire.PART_HEADER :])
        receipt, seq = (
            (meta.answer, meta.answered) if meta.HasField("answer") else (meta.receipt, meta.seq)
        )
        if receipt.last_seq or receipt.status or seq:
            self._receipt(edge, seq, receipt)
        if meta.WhichOneof("kind") == "model":
            edge.version = meta.model.version
            self.ready.append(edge)

    def _receipt(self, edge: CrowdEdge, seq: int, receipt: pb.Receipt) -> None:
        if seq != edge.seq or not edge.sent:
            return
        assert receipt.status in (pb.Receipt.ACCEPTED, pb.Receipt.DUPLICATE), receipt
        if edge.joined:
            self.waits.append(time.monotonic() - edge.sent)
        else:
            edge.joined = True
            self.joined += 1
        edge.sent = 0.0

    def _hello(self, edge: CrowdEdge) -> None:
        self._send(
            edge, raw_mqtt.publish(2, topics.presence(RUN, edge.name), b"online", retain=True)
        )
        hello = pb.Hello(epsilon=1e6, delta=1e-5, mechanism="gaussian", clip_min=0.1, clip_max=10.0)
        hello.definition = self._definition
        self._post(edge, pb.Meta(hello=hello), None)

    def _update(self, edge: CrowdEdge) -> None:
        q, z = self._spend
        assert edge.version is not None
        update = pb.Update(base_version=edge.version, clip=1.0)
        update.spent.append(pb.Spend(sampling_rate=q, noise_multiplier=z, count=edge.seq))
        update.charged.count, update.charged.head = edge.seq, bytes(32)
        edge.version = None
        self._post(edge, pb.Meta(update=update), self._body)

    def _post(self, edge: CrowdEdge, meta: pb.Meta, body: Tensor | None) -> None:
        edge.seq += 1
        meta.run = RUN
        meta.edge = edge.name
        meta.seq = edge.seq
        meta.schema_hash = self._schema
        edge.message = wire.part(wire.encode(meta, body), CHUNK, 0)
        edge.sent = edge.again = time.monotonic()
        self._say(edge, edge.message)

    def _say(self, edge: CrowdEdge, message: bytes) -> None:
        topic = topics.up(RUN, edge.name, edge.seq, 0)
        self._send(edge, raw_mqtt.publish(3, topic, message))

    def _send(self, edge: CrowdEdge, data: bytes) -> None:
        edge.out += data
        self._write(edge)

    def _write(self, edge: CrowdEdge) -> None:
        try:
            sent = edge.sock.send(edge.out)
        except BlockingIOError:
            sent = 0
        del edge.out[:sent]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if edge.out else 0)
        self._selector.modify(edge.sock, events, edge)


def _meta(envelope: memoryview) -> pb.Meta:
    length = int.from_bytes(envelope[4:8], "little")
    return pb.Meta.FromString(bytes(envelope[8 : 8 + length]))


def main(options: dict[str, Any]) -> dict[str, Any]:
    """Join, print "ready", push at the parent's signal."""
    crowd = Crowd(options["broker"], Path(options["run_file"]), options["count"])
    join_s = crowd.join(options["patience"])
    print("ready", flush=True)
    sys.stdin.readline()
    crowd.push(options["rate"], options["warm_s"])
    crowd.waits.clear()
    pushed = crowd.push(options["rate"], options["seconds"])
    return {"join_s": join_s, "resent": crowd.resent, "pushed": pushed, "waits": crowd.waits}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[2]))), flush=True)
