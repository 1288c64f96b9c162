"""A member of a run that means harm: with a name of the run, and a certificate where there is TLS,
it says what no honest edge says.

`Member` speaks the wire; `BEHAVIOURS` are what it does, by name. As a process it does them in turn
until it is ended, and comes back by itself where its broker dies:

    python -m tests.helpers.hostile RUN_FILE BROKER RUN_ID edge-4 [--seconds S] [--only NAME]...
"""

from __future__ import annotations

import argparse
import hashlib
import math
import queue
import random
import secrets
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.transport.tls import Tls
from torch import Tensor

from tacit import config
from tacit.config import RunFile
from tacit.errors import WireError
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.run_files import definition_text

CHUNK = 1 << 18
CONNECT = 90.0  # seconds until the broker must have answered
LARGEST = CHUNK  # what a broker of compose.yaml takes in one payload
MOST_WAITING = 64  # of its own messages that a member leaves to its connection
HUGE = 1.7e308  # finite; infinite, if one more is added
Poison = Callable[[Tensor, random.Random], Tensor]


def far_too_long(params: Tensor, rng: random.Random) -> Tensor:
    """Return a vector of 9.9e5 everywhere, finite and in bounds."""
    return torch.full_like(params, 9.9e5)


def not_a_number(params: Tensor, rng: random.Random) -> Tensor:
    """Return a vector of NaN."""
    return torch.full_like(params, math.nan)


class Member:
    """One name of a run, and a connection that is its own."""

    def __init__(
        self,
        run: RunFile,
        broker: str,
        run_id: str,
        edge: str,
        *,
        tls: Tls | None = None,
        seed: int = 1,
        poison: Poison = far_too_long,
        hostile_chunk: int = CHUNK,
    ) -> None:
        """Join `run` as `edge`; `poison` turns the newest model into an update."""
        model, self._definition = run.build_model(), definition_text(run)
        self.schema, self.size = model.schema_hash(), model.size
        self.run_id, self.edge, self.poison = run_id, edge, poison
        self.random, self.chunk = random.Random(seed), hostile_chunk
        # Nobody told it where it had come to; a number that was used before would be a duplicate.
        self.seq = time.time_ns() // 1000 % 10**14
        self.version, self.params = 0, torch.zeros(self.size)
        self.head = b""  # of the model that was sent to it last
        self.sent: dict[str, int] = {}
        self._inbox: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        down = [topics.down_all(run_id, edge), topics.model(run_id)]
        self.connection = Connection(broker, f"{run_id}-{edge}", down, self._inbox.put, tls=tls)

    # -- what it can say ---------------------------------------------------------------------------

    def say(self, payload: bytes, *, seq: int | None = None, retain: bool = False) -> None:
        """Send one payload on the member's own topic, with its number in front."""
        number = self.seq if seq is None else seq
        self.publish(
            topics.up_numbered(self.run_id, self.edge),
            topics.numbered(number, payload),
            retain=retain,
        )

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish anything anywhere; wait while too much of it is still on its way to the broker."""
        client = self.connection._client
        while len(client._out_messages) > MOST_WAITING and self.connection.up:
            threading.Event().wait(0.001)
        if self.connection.up:  # else paho would keep it
            self.connection.publish(topic, payload, retain=retain)

    def tell(self, meta: pb.Meta, tensor: Tensor | None = None, *, seq: int | None = None) -> None:
        """Send one whole message, well-formed around whatever is in it."""
        self.seq += 1
        meta.run, meta.edge = self.run_id, self.edge
        meta.seq = self.seq if seq is None else seq
        meta.schema_hash = meta.schema_hash or self.schema
        for payload in wire.split(wire.encode(meta, tensor), self.chunk):
            self.say(payload, seq=meta.seq)

    def hello(self, **claims: object) -> None:
        """Send a Hello with these claims."""
        usual: dict[str, object] = {
            "epsilon": 8.0,
            "delta": 1e-5,
            "mechanism": "gaussian",
            "noise_variance": 0.1,
            "clip_min": 0.1,
            "clip_max": 10.0,
            "definition": self._definition,
        }
        self.tell(pb.Meta(hello=pb.Hello(**usual | claims)))  # type: ignore[arg-type]

    def update(self, tensor: Tensor, *, base: int | None = None, seq: int | None = None) -> None:
        """Send an Update with this tensor."""
        version = self.version if base is None else base
        self.tell(pb.Meta(update=pb.Update(base_version=version, clip=1.0)), tensor, seq=seq)

    def hear(self) -> None:
        """Take what has come, and remember the newest model."""
        with suppress(queue.Empty):
            while True:
                inbound = self._inbox.get_nowait()
                inbound.done()
                with suppress(WireError):
                    self._learn(inbound)

    def _learn(self, inbound: Inbound) -> None:
        payload = inbound.payload
        if inbound.topic.endswith("/model/0"):
            self.head = hashlib.sha256(payload).digest()
        envelope = payload if payload[:4] == wire.MAGIC else wire.Assembler(1 << 24).add(payload)
        if envelope is None:
            return
        received = wire.decode(envelope)
        kind = received.meta.WhichOneof("kind")
        if kind == "model" and received.tensor is not None:
            self.version, self.params = received.meta.model.version, received.tensor
        elif kind == "announcement":
            self.version = max(self.version, received.meta.announcement.version)

    # -- what it does ------------------------------------------------------------------------------

    def lie(self) -> None:
        """Send Hellos that claim what would move the run's numbers, if they were believed."""
        self.hello(noise_variance=HUGE, epsilon=1e300, delta=0.9)
        self.hello(noise_variance=0.0, mechanism="none", clip_min=1e-300, clip_max=HUGE)
        self.hello(epsilon=math.nan)
        history = [pb.Spend(sampling_rate=1.0, noise_multiplier=1e-9, count=10**9)]
        self.hello(spent=history, charged=pb.Charged(count=2**52, head=secrets.token_bytes(32)))
        self.hello(definition='{"data.seed": 7}')

    def large_hellos(self, count: int = 40) -> None:
        """Send Hellos of nearly a megabyte, in bytes that take long to read."""
        for _ in range(count):
            self.hello(definition="[" * 200_000 + "9" * 700_000)

    def flood(self, count: int = 2000) -> None:
        """Send small messages as fast as possible."""
        for _ in range(count):
            self.hello()

    def retain(self, count: int = 40) -> None:
        """Publish as many retained messages as a broker takes, on its own and other topics."""
        for number in range(count):
            for topic in (
                topics.up(self.run_id, self.edge, number, self.random.randrange(10**6)),
                topics.up_numbered(self.run_id, self.edge),
                topics.peer(self.run_id, f"edge-{number}", self.edge, number, 0),
                f"tacit/v1/{secrets.token_hex(8)}/up/{self.edge}/0/0",
                f"{secrets.token_hex(8)}/x",
            ):
                self.publish(topic, bytes(LARGEST), retain=True)

    def begin_and_leave(self, count: int = 200) -> None:
        """Announce messages of the largest size, of which one part comes, or a question."""
        total = 4 * self.size + wire.MAX_META
        for _ in range(count):
            self.seq += 1
            for at, body in ((0, b""), (1, b"x"), (total // 1000 // 2, b"x")):
                head = struct.pack("<4sIIQQ", wire.PART_MAGIC, at, total // 1000, total, at)
                self.say(head + body)

    def dust(self, count: int = 2000) -> None:
        """Send one message in parts of a byte, whose first part never comes."""
        total = 4 * self.size + wire.MAX_META
        self.seq += 1
        for at in range(1, min(count, total)):
            self.say(struct.pack("<4sIIQQ", wire.PART_MAGIC, at, total, total, at) + b"x")

    def repeat(self) -> None:
        """Send numbers that were used before, and numbers far beyond."""
        for seq in (0, 1, self.seq // 2, 2**53 - 1, 2**53, 2**64 - 1):
            meta = pb.Meta(
                run=self.run_id, edge=self.edge, seq=min(seq, 2**63), schema_hash=self.schema
            )
            meta.retired.reason = "again"
            if seq < 2**53 - 1:
                (payload,) = wire.split(wire.encode(meta), CHUNK)
                self.say(payload, seq=seq)
            else:
                self.say(b"x", seq=seq)

    def wrong_shapes(self) -> None:
        """Send vectors of other sizes, of other models, of no model, and none at all."""
        for size in (1, self.size - 1, self.size + 1, 3 * self.size):
            self.update(torch.ones(size))
        update = pb.Update(base_version=self.version, clip=1.0)
        self.tell(pb.Meta(update=update, schema_hash=bytes(32)), torch.ones(self.size))
        self.tell(pb.Meta(update=update))
        self.tell(pb.Meta(hello=pb.Hello(epsilon=1.0, delta=0.1)), torch.ones(3))
        self.tell(pb.Meta(model=pb.GlobalModel(version=9)), torch.ones(self.size))
        self.tell(pb.Meta(halt=pb.Halt(version=9, reason="mine")))

    def no_numbers(self) -> None:
        """Send NaN, infinity, and the largest float32."""
        for value in (math.nan, math.inf, -3.4e38):
            self.update(torch.full((self.size,), value))

    def stale(self) -> None:
        """Send honest-looking noise on versions that are old, or that do not exist."""
        noise = torch.randn(self.size, generator=torch.Generator().manual_seed(self.seq))
        for base in (0, max(0, self.version - 90), self.version + 1, 2**63):
            self.update(1e-3 * noise, base=base)

    def poisoned(self) -> None:
        """Send what `poison` makes of the newest model."""
        self.update(self.poison(self.params, self.random))

    def garbage(self) -> None:
        """Send random bytes, in messages and in presence, under its own name and under others."""
        for size in (0, 1, 27, 28, 40, 5000):
            self.say(self.random.randbytes(size))
            self.publish(topics.up_numbered(self.run_id, self.edge), self.random.randbytes(size))
        prefix = topics.presence(self.run_id, "")
        for name in (self.edge, "edge-0", "edge-999999", secrets.token_hex(8)):
            self.publish(prefix + name, self.random.randbytes(3000), retain=True)
        self.publish(prefix + self.edge, b"online", retain=True)

    def wants(self, count: int = 200) -> None:
        """Ask again and again for parts of models that nobody sends, and for parts of the newest.

        The newest model's parts have arrived, and are then reported as lost.
        """
        for number in range(count):
            want = pb.Want(head=self.random.randbytes(32), missing=[2**32 - 1] * 32, lost=True)
            if number % 2 and self.head:
                first = self.random.randrange(0, 64, 16)
                want = pb.Want(head=self.head, missing=range(first, first + 16))
            meta = pb.Meta(run=self.run_id, edge=self.edge, want=want)
            (payload,) = wire.split(wire.encode(meta), CHUNK)
            self.say(payload, seq=0)

    def flap(self, count: int = 400) -> None:
        """Report itself online, left, and online again, as fast as possible."""
        for number in range(count):
            word = (b"online", b"left", b"retired", b"refusing")[number % 4]
            self.publish(topics.presence(self.run_id, self.edge), word, retain=True)

    def subscribe(self, filters: Sequence[str]) -> None:
        """Ask the broker for these; waits while too much is still on its way to it."""
        client = self.connection._client
        while len(client._out_packet) > MOST_WAITING and self.connection.up:
            threading.Event().wait(0.001)
        if self.connection.up:
            client.subscribe([(name, 1) for name in filters])

    def subscriptions(self, count: int = 100) -> None:
        """Subscribe to ever new topics with long names, alone and by the thousand, and to its own.

        Of its own the broker sends what it retains again each time; some are in a group of their
        own.
        """
        prefix = f"tacit/v1/{self.run_id}"
        model_topic = topics.model(self.run_id)
        for _ in range(count):
            self.subscribe([f"{prefix}/down/{self.edge}/{secrets.token_hex(15_000)}"])
            self.subscribe([f"$share/{secrets.token_hex(15_000)}/{model_topic}"])
            self.subscribe([model_topic])
        for _ in range(max(1, count // 50)):
            self.subscribe([secrets.token_hex(8) for _ in range(20_000)])
            self.subscribe([model_topic] * 20_000)

    def claim_the_end(self, horizon: int, peers: Sequence[str], seq: int) -> None:
        """Claim to peers and observer, of itself and of others, that all T steps are done."""
        self.publish(topics.steps(self.run_id, self.edge), str(horizon).encode(), retain=True)
        counts = dict.fromkeys(peers, horizon)
        for to in peers:
            meta = pb.Meta(run=self.run_id, edge=self.edge, schema_hash=self.schema)
            meta.proposal.CopyFrom(pb.Proposal(life=1, seq=seq, counts=counts))
            for payload in wire.split(wire.encode(meta, self.params), self.chunk):
                topic = topics.peer_numbered(self.run_id, to, self.edge)
                self.publish(topic, topics.numbered(seq, payload))
        update = pb.Update(base_version=horizon, steps=horizon)
        self.tell(pb.Meta(update=update), self.params)

    def act(self, behaviours: Sequence[str]) -> None:
        """Do each of the behaviours once, in an order drawn from the seed."""
        for name in self.random.sample(behaviours, len(behaviours)):
            self.hear()
            getattr(self, name)()
            self.sent[name] = self.sent.get(name, 0) + 1


BEHAVIOURS = (
    "lie",
    "large_hellos",
    "flood",
    "retain",
    "begin_and_leave",
    "dust",
    "repeat",
    "wrong_shapes",
    "no_numbers",
    "stale",
    "poisoned",
    "garbage",
    "wants",
    "flap",
    "subscriptions",
)
# What a run's journal may hold of them is accepted messages like any other's: an honest judge of a
# journal counts it out by its name. These leave none but Hellos, Retired and stale updates there.
HARMLESS_TO_THE_MODEL = tuple(name for name in BEHAVIOURS if name not in ("poisoned", "stale"))
# A broker without rules keeps all that these leave there.
BOUNDED_BY_RULES = ("retain", "subscriptions")


def attack(member: Member, stop: threading.Event, behaviours: Sequence[str]) -> None:
    """Do all that again and again until `stop`."""
    while not stop.is_set():
        member.act(behaviours)


def main() -> None:
    """Run a hostile member as a process."""
    parser = argparse.ArgumentParser()
    for name in ("run_file", "broker", "run_id", "edge"):
        parser.add_argument(name)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=BEHAVIOURS, default=[])
    parser.add_argument("--bundle", type=Path, help="folder with ca.crt, tls.crt and tls.key")
    arguments = parser.parse_args()
    bundle = arguments.bundle
    tls = bundle and Tls(bundle / "ca.crt", bundle / "tls.crt", bundle / "tls.key")
    run = config.load(Path(arguments.run_file))
    member = Member(
        run, arguments.broker, arguments.run_id, arguments.edge, tls=tls, seed=arguments.seed
    )
    member.connection.start(CONNECT)
    print("begins", flush=True)  # noqa: T201  (who waits for it reads that)
    stop, behaviours = threading.Event(), arguments.only or BEHAVIOURS
    if math.isfinite(arguments.seconds):
        threading.Timer(arguments.seconds, stop.set).start()
    attack(member, stop, behaviours)
    member.connection.stop()


if __name__ == "__main__":
    main()
