"""A server driver and edge loops in threads over a real broker, and an edge that says what it
should not.
"""

from __future__ import annotations

import itertools
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tacit_services.aggregator.assembly import Assembly, Surroundings, assemble
from tacit_services.aggregator.broker_link import BrokerLink
from tacit_services.aggregator.pipeline import Pipeline
from tacit_services.journal.store import Store
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.memory import MemoryStore
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.tasks import task_loop
from torch import Tensor

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.golden.harness import make_edge, sha256, ungated
from tests.helpers.assembled import Assembled
from tests.helpers.processes import PATIENCE, Caller
from tests.helpers.run_files import MAPA, PLACES, Layer, definition_text, roomy, toml
from tests.helpers.servers import wait_for

SAID_AGAIN = 10.0  # seconds without a receipt after which a Hello is said again
ROOMY = JournalLimits(10**6, 1 << 40)
STATUS = pb.Receipt.Status
_NUMBERS = itertools.count(1)  # of edges that have said nothing yet


def run_text(
    updates: int = 1000, snapshot_every: int = 10**6, max_staleness: int = 100, *, more: Layer = ""
) -> str:
    """Return the run file of a rig of two edges; `more` adds to it, or replaces keys."""
    usual: Layer = {
        "run": {"updates": updates, "snapshot_every": snapshot_every},
        "algorithm": {"max_staleness": max_staleness},
        "edges": {"count": 2},
    }
    return toml(MAPA, usual, more)


def run_file(updates: int = 1000, snapshot_every: int = 10**6, max_staleness: int = 100) -> RunFile:
    return config.parse(run_text(updates, snapshot_every, max_staleness), "test")


class Rig(Assembled):
    """A driver over a real broker, in this thread (`accept`) or in its own (`serve`), with edge
    loops in threads.
    """

    def __init__(
        self,
        run: RunFile,
        broker: str,
        run_id: str,
        store: Store | None = None,
        chunk: int = 1 << 18,
        *,
        ledger: Path | str = "",
        clock: Callable[[], float] = time.monotonic,
        places: int = PLACES,
    ) -> None:
        """Build the rig: `ledger` is for noise_at = "server", `clock` for the guard's limits.

        `places` is the number of names that the definition has.
        """
        self.places = places
        self.run, self.broker, self.run_id, self.chunk = run, broker, run_id, chunk
        self.model = run.build_model()
        self.schema = self.model.schema_hash()
        self.store = MemoryStore(run_id, ROOMY) if store is None else store
        self.link = BrokerLink(broker, f"{run_id}-aggregator", PATIENCE)
        self.ledger, self.clock = ledger, clock
        self.assembly = self.assembled(self.store)
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []
        self._building = threading.Lock()
        self.epsilon: dict[int, float] = {}  # ε of an edge, where it is not the run file's
        # In the driver's thread.
        self.idle: Callable[[], None] = lambda: None
        self.ended: Callable[[], None] = lambda: None

    def assembled(self, store: Store) -> Assembly:
        """Assemble this run on `store`, not taken over yet."""
        run, largest = self.run, max(1 << 24, 5 * self.model.size)
        if run.algorithm.traits(1).oldest is not None:  # rounds begin with those whom they expect
            run = ungated(run)
        surroundings = Surroundings(
            self.run_id, store, self.link, largest, self.chunk, self.ledger, self.clock
        )
        # The role knows how many edges the run file expects: a first round waits for them.
        role = registry.server(self.run.define(), self.model)
        return assemble(roomy(run, self.places), role, self.model, surroundings)

    def connect(self) -> Connection:
        """Open the driver's connection, with its subscriptions at the broker.

        A broker takes one connection's packets in their order: what it has acknowledged came after
        them.
        """
        connection = self.link.open(self.live.subscriptions(), self.pipeline.hear)
        connection.publish(f"rig/{self.run_id}", b"")
        assert connection._newest is not None
        connection._newest.wait_for_publish(PATIENCE)
        return connection

    def serve(self) -> None:
        """Run the driver in a thread until the role halts or `close`."""
        self.driver.recover()
        connection = self.connection = self.connect()

        def work() -> None:
            self.driver.train(self.stop, lambda: self.idle())
            if self.live.role.halted:
                self.driver.farewell(self.stop)
            connection.stop()
            self.ended()

        self._thread(work)

    def restart(self) -> None:
        """Serve on with a successor of the driver, on the same store."""
        self.close()
        self.stop, self.assembly = threading.Event(), self.assembled(self.store)
        self.serve()

    def edge(
        self,
        number: int,
        folder: Path,
        *,
        patience: float = 30.0,
        seed: int | None = 5,
        broker: str = "",
        make: Callable[[], EdgeRole] | None = None,
        deaf: Callable[[Inbound], bool] = lambda inbound: False,
    ) -> None:
        """Run edge `number` in a thread; it does not hear messages that `deaf` is true for.

        `broker`: where it connects, if not where the driver does; `make` (called in its thread):
        another role than the usual one.
        """

        def work() -> None:
            torch.set_num_threads(1)
            # Python 3.11 cannot parse in two threads at once; numpy parses the head of a data file.
            with self._building:
                role = (
                    make()
                    if make
                    else make_edge(self.run, self.model, number, seed, self.epsilon.get(number))
                )
            edge_folder = folder / f"edge-{number}"
            edge_folder.mkdir(exist_ok=True)
            outbox = Outbox(role.releaser.ledger, self.run_id, b"", edge_folder)
            settings = self.settings(patience)
            loop = task_loop(role, outbox, settings, CpuTurns(None))
            connection = Connection(
                broker or self.broker,
                f"{self.run_id}-{role.edge}",
                [topics.down_all(self.run_id, role.edge), topics.model(self.run_id)],
                lambda inbound: None if deaf(inbound) else loop.mailbox.put(inbound),
                on_up=loop.mailbox.connected,
            )
            connection.start(PATIENCE)
            present: Callable[[str], None] = lambda state: connection.publish(  # noqa: E731
                topics.presence(self.run_id, role.edge), state.encode(), retain=True
            )
            present("online")
            loop.run(connection, self.stop, present)
            connection.stop()
            role.releaser.ledger.close()

        self._thread(work)

    def settings(self, patience: float) -> LoopSettings:
        """Return the settings of an edge of this run."""
        size, definition = self.model.size, definition_text(self.run)
        return LoopSettings(self.run_id, self.schema, size, self.chunk, patience, definition)

    def _thread(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as failure:
                self.failures.append(failure)
                raise

        self.threads.append(threading.Thread(target=guarded, daemon=True))
        self.threads[-1].start()

    def finished(self, seconds: float = PATIENCE) -> ServerRole:
        """Wait for the end of the run; the role."""
        wait_for(
            lambda: bool(self.failures) or not any(thread.is_alive() for thread in self.threads),
            seconds,
        )
        assert not self.failures
        return self.live.role

    def close(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(PATIENCE)

    def fold(self) -> tuple[int, str, dict[str, int]]:
        """Return all that an update would change."""
        with self.live.lock:
            role = self.live.role
            return (
                role.version,
                sha256(role),
                {name: record.updates for name, record in role.edges.items()},
            )


@dataclass
class Message:
    """One envelope from `edge`, with everything that can be wrong in it."""

    edge: str
    seq: int
    run: str
    schema: bytes
    topic_edge: str = ""
    meta: pb.Meta = field(default_factory=pb.Meta)
    tensor: Tensor | None = None

    def envelope(self) -> bytes:
        self.meta.run, self.meta.edge, self.meta.seq, self.meta.schema_hash = (
            self.run,
            self.edge,
            self.seq,
            self.schema,
        )
        return wire.encode(self.meta, self.tensor)


class Hostile(Caller):
    """An edge that is known to the run, and then says something else."""

    def __init__(self, rig: Rig, edge: str) -> None:
        super().__init__(rig.broker, rig.run_id, edge)
        self.rig, self.seq = rig, 0

    def greeting(self, **claims: Any) -> Message:
        """Return a Hello by the run's definition, with these claims."""
        meta = hello_meta(self.rig.run)
        meta.hello.noise_variance = 0.1
        meta.hello.MergeFrom(pb.Hello(**claims))
        return self.message(meta)

    def hello(self) -> int:
        """Return the status of a greeting's receipt.

        The greeting is repeated where nobody hears it, as before the aggregator has subscribed.
        """
        greeting = self.greeting()
        (payload,) = self.parts(greeting)
        for _ in range(round(PATIENCE / SAID_AGAIN)):
            self.publish(greeting.seq, payload)
            with suppress(TimeoutError):
                return int(self.receipt(greeting.seq, SAID_AGAIN).status)
        raise TimeoutError("no receipt of a Hello came")

    def message(self, meta: pb.Meta, tensor: Tensor | None = None) -> Message:
        self.seq += 1
        return Message(self.edge, self.seq, self.run_id, self.rig.schema, meta=meta, tensor=tensor)

    def update(
        self, value: float = 1e-3, *, base: int | None = None, size: int | None = None
    ) -> Message:
        version = self.rig.live.role.version if base is None else base
        update = pb.Update(base_version=version, clip=1.0)
        update.spent.append(pb.Spend(sampling_rate=0.1, noise_multiplier=1.0, count=1))
        tensor = torch.full((self.rig.model.size if size is None else size,), value)
        return self.message(pb.Meta(update=update), tensor)

    def parts(self, message: Message, chunk: int = 1 << 18) -> list[bytes]:
        return list(wire.split(message.envelope(), chunk))

    def publish(self, seq: int, payload: bytes, part: int = 0) -> None:
        self.connection.publish(topics.up(self.run_id, self.edge, seq, part), payload)

    def said(self, message: Message) -> int:
        """Send it; the status of its receipt."""
        (payload,) = self.parts(message)
        self.publish(message.seq, payload)
        return int(self.receipt(message.seq).status)

    def receipt(self, seq: int, seconds: float = PATIENCE) -> pb.Receipt:
        while (meta := self.receive("receipt", seconds).meta).seq != seq:
            pass
        return meta.receipt


def new(rig: Rig) -> Hostile:
    """Return a hostile edge that has sent nothing yet."""
    return Hostile(rig, f"edge-{next(_NUMBERS)}")


def part(
    envelope: bytes,
    *,
    magic: bytes = wire.PART_MAGIC,
    number: int = 0,
    parts: int = 1,
    total: int | None = None,
    offset: int = 0,
) -> bytes:
    """Return one MQTT payload as wire.split makes it, or not."""
    return (
        struct.pack(
            "<4sIIQQ", magic, number, parts, len(envelope) if total is None else total, offset
        )
        + envelope
    )


def hello_meta(run: RunFile) -> pb.Meta:
    hello = pb.Hello(epsilon=8.0, delta=1e-5, mechanism="gaussian", clip_min=0.1, clip_max=10)
    hello.definition = definition_text(run)
    return pb.Meta(hello=hello)


def update_meta(base: int) -> pb.Meta:
    return pb.Meta(update=pb.Update(base_version=base, clip=1.0))


def take(pipeline: Pipeline, messages: Iterable[Inbound]) -> None:
    """Let all happen to these messages that happens to what the broker delivers."""
    for message in messages:
        pipeline.hear(message)
    pipeline.accept(0.0)


def inbound(rig: Rig, metas: list[pb.Meta], first: int = 1, edge: str = "edge-0") -> list[Inbound]:
    """Return what the broker would deliver for these messages of `edge`, numbered from `first`."""
    messages = []
    for seq, meta in enumerate(metas, first):
        tensor = (
            torch.full((rig.model.size,), 0.01 * seq)
            if meta.WhichOneof("kind") == "update"
            else None
        )
        message = Message(edge, seq, rig.run_id, rig.schema, meta=meta, tensor=tensor)
        messages.append(
            Inbound(topics.up(rig.run_id, edge, seq, 0), part(message.envelope()), lambda: None)
        )
    return messages
