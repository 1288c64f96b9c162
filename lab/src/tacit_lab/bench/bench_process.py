"""The child processes of the benchmark, `python -m tacit_lab.bench.bench_process KIND JSON`.

Each prints one JSON line.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch
from tacit_services.transport.flight import WINDOW
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.tasks import task_loop
from torch import Tensor

from tacit import config, datasets
from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.digests import canonical
from tacit.models.vectors import mean_gradient
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.grid import grid_step
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Releaser
from tacit.protocol import topics, wire, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import GlobalModel, Hello, Outgoing, Push, ServerOutput
from tacit_lab.bench.child import answer, begin, resident


class ReadyMade(GradientEdge):
    """An edge whose update was released once, beforehand: everything but the computation."""

    outbox: Outbox
    folder: Path | None = None  # of its outbox
    largest = 0  # bytes of a message that has a file there

    def prepare(self) -> None:
        """Release one vector, and remember when models come."""
        total = torch.zeros(self.model.size, dtype=torch.int64)
        step = grid_step(1.0, self.releaser.plan.noise_multiplier)
        self.ready = self.releaser.release(1.0, lambda: Clipped(total, 1.0, step))
        self.models: list[float] = []  # seconds from each update to the next model
        self._pushed: float | None = None

    def on_message(self, message: ServerOutput) -> list[Outgoing]:
        if not isinstance(message, GlobalModel):
            return super().on_message(message)
        if self._pushed is not None:
            self.models.append(time.perf_counter() - self._pushed)
        self._note_largest()
        self._pushed = time.perf_counter()
        self.releaser._charge(1.0, 1)  # what was charged ahead: the next commit has one again
        return [Outgoing("server", Push(self.edge, message.version, self.ready))]

    def _note_largest(self) -> None:
        files = [] if self.folder is None else (self.folder / "messages").glob("*")
        self.largest = max([self.largest, *(file.stat().st_size for file in files)])


def build(options: dict[str, Any], kind: type[GradientEdge]) -> EdgeRole:
    """Return an edge of the run file, on its own rows, with a ledger in memory."""
    run = config.load(Path(options["run_file"]))
    root = Path(options["data"]) if options["data"] else None
    number: int = options["number"]
    labels = datasets.load_labels(run.source.name, "train", root)
    rows = datasets.shard(labels, number, shards=run.edges.count, method="iid", seed=1)
    part = datasets.load(run.source.name, "train", root, rows)
    releaser = Releaser(run.plan(number, len(rows)), Ledger(":memory:", run.source.name), Random())
    return registry.edge(
        run.define(), f"edge-{number}", part, run.build_model(), releaser, kind=kind
    )


def push(options: dict[str, Any]) -> dict[str, Any]:
    """Run the whole path with ready-made updates, until Halt."""
    role = build(options, ReadyMade)
    assert isinstance(role, ReadyMade)
    folder = Path(options["folder"]) / f"edge-{options['number']}"
    folder.mkdir()
    role.releaser.ledger = Ledger(folder / "ledger.db", "bench")
    role.releaser.releases_left = None  # as many as are asked for
    role.prepare()
    role.outbox = Outbox(role.releaser.ledger, "bench", folder=folder)
    role.folder = folder
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew: building a role takes more
    before = resident(os.getpid(), "VmRSS")
    _serve(role, options, patience=30.0)
    grown = resident(os.getpid(), "VmHWM") - before
    return {"models": role.models, "grown": grown, "update": role.largest}


def definition(options: dict[str, Any]) -> str:
    """Return the definition that a Hello states."""
    return canonical(config.load(Path(options["run_file"])).agreed())


def _serve(role: ReadyMade, options: dict[str, Any], patience: float) -> None:
    """Run the edge's loop until Halt. patience: seconds, as LoopSettings has it."""
    schema = role.model.schema_hash()
    size = role.model.size
    settings = LoopSettings("bench", schema, size, 256 * 1024, patience, definition(options))
    loop = task_loop(role, role.outbox, settings, CpuTurns(None))
    subscriptions = [topics.down_all("bench", role.edge), topics.model("bench")]
    connection = Connection(
        options["broker"],
        f"bench-{role.edge}",
        subscriptions,
        loop.mailbox.put,
        on_up=loop.mailbox.connected,
    )
    begin(connection)
    loop.run(connection, threading.Event(), lambda state: None)
    connection.stop()


class _ReceiptCount:
    """What has been heard of the rails: a permit of `window` and of `receipts` for each receipt.

    newest: the version of the newest model.
    """

    def __init__(self) -> None:
        self.window = threading.Semaphore(1)
        self.receipts = threading.Semaphore(0)
        self.newest = 0

    def hear(self, inbound: Inbound) -> None:
        """Take in a receipt, or a model that answers a message."""
        inbound.done()
        is_model = "/model/" in inbound.topic
        if not is_model and "/receipt/" not in inbound.topic:
            return
        encoded = wire.Assembler(1 << 28).add(inbound.payload) if is_model else inbound.payload
        assert encoded is not None  # one chunk
        meta = wire.decode(encoded).meta
        self.newest = max(self.newest, meta.model.version)
        if meta.WhichOneof("kind") == "model" and not meta.HasField("answer"):
            return  # a task that its edge had to wait for: the receipt has come before
        receipt = meta.receipt if meta.HasField("receipt") else meta.answer
        assert receipt.status == pb.Receipt.ACCEPTED, receipt
        self.window.release()
        self.receipts.release()


def stream(options: dict[str, Any]) -> dict[str, Any]:
    """Run the rails alone.

    Ready-made envelopes, WINDOW unreceipted at a time; models are received and not used.
    """
    role = build(options, ReadyMade)
    assert isinstance(role, ReadyMade)
    role.prepare()
    schema = role.model.schema_hash()
    count = options["count"]
    hello = role.start()[0].message
    assert isinstance(hello, Hello)
    messages: list[Hello | Push] = [hello, *[Push(role.edge, 0, role.ready)] * count]
    envelopes = [
        wire_up.up("bench", seq, message, schema, definition(options))
        for seq, message in enumerate(messages, 1)
    ]
    heard = _ReceiptCount()
    topic = topics.down_all("bench", role.edge)
    connection = Connection(options["broker"], f"bench-{role.edge}", [topic], heard.hear)
    begin(connection)
    for seq, envelope in enumerate(envelopes, 1):
        heard.window.acquire()
        if seq == 2:  # Hello has its receipt: open the window
            heard.window.release(WINDOW - 1)
        if (
            options.get("fresh") and seq > 1
        ):  # made for the newest model: what a server keeps of staleness stays small
            envelope = wire_up.up("bench", seq, Push(role.edge, heard.newest, role.ready), schema)
        for part, payload in enumerate(wire.split(envelope, 256 * 1024)):
            connection.publish(topics.up("bench", role.edge, seq, part), payload)
    for _ in envelopes:
        heard.receipts.acquire()
    connection.stop()
    return {}


class Paced(ReadyMade):
    """One that takes its time, as an edge that computes does: `pause` seconds an update."""

    pause: float

    def on_message(self, message: ServerOutput) -> list[Outgoing]:
        if isinstance(message, GlobalModel):
            threading.Event().wait(self.pause)
        return super().on_message(message)


def paced(options: dict[str, Any]) -> dict[str, Any]:
    """Run an edge loop whose step takes `pause` seconds, until its parent ends it."""
    role = build(options, Paced)
    assert isinstance(role, Paced)
    role.prepare()
    role.pause = options["pause"]
    role.outbox = Outbox(role.releaser.ledger, "bench")
    _serve(role, options, patience=1.0)
    return {}


def flood(options: dict[str, Any]) -> dict[str, Any]:
    """Send updates without waiting for receipts: `rate` a second for `seconds`.

    rate: 0 stands for as many as the broker takes.

    `nice`: a sender that yields the processors to the others, as one with a machine of its own
    would.
    """
    os.nice(options["nice"])
    role = build(options, ReadyMade)
    assert isinstance(role, ReadyMade)
    role.prepare()
    schema = role.model.schema_hash()
    definition_text = definition(options)
    sent = 0
    connection = Connection(
        options["broker"], f"bench-{role.edge}-flood", [], lambda inbound: inbound.done()
    )
    hello = role.start()[0].message
    assert isinstance(hello, Hello)
    begin(connection)
    outstanding = threading.Semaphore(32)
    client = connection._client
    client.on_publish = lambda *_: outstanding.release()
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < options["seconds"]:
        if options["rate"] and sent > options["rate"] * elapsed:
            threading.Event().wait(0.002)
            continue
        sent += 1
        message = hello if sent == 1 else Push(role.edge, 0, role.ready)
        outstanding.acquire()
        envelope = wire_up.up("bench", sent, message, schema, definition_text)
        payload = wire.part(envelope, 256 * 1024, 0)
        client.publish(topics.up("bench", role.edge, sent, 0), payload, qos=1)
    connection.stop()
    return {"sent": sent}


def compute(options: dict[str, Any]) -> NoReturn:
    """Run the edge step alone (sample, clip, noise, in-memory ledger), until killed."""
    role = build(options, GradientEdge)
    params = role.model.init(1)
    _count(options, lambda: role.on_message(GlobalModel(0, params, 1.0)))


def plain(options: dict[str, Any]) -> NoReturn:
    """Take plain steps until killed: the mean gradient of the rows that an edge expects."""
    role = build(options, GradientEdge)
    params = role.model.init(1)
    batch = round(role.releaser.plan.batch)
    rows = role.private_sum
    assert isinstance(rows, RowsAlone | Slots)

    def step() -> Tensor:
        index = torch.randint(rows.records, (batch,))
        return mean_gradient(role.model, params, rows.x[index], rows.y[index])

    _count(options, step)


def _count(options: dict[str, Any], step: Callable[[], object]) -> NoReturn:
    """Take steps, and count them in the file `counter`.

    With `turns` it computes when it has one, as the edges of `tacit run` do.
    """
    turns = CpuTurns(Path(options["turns"]) if options["turns"] else None)
    count = 0
    with Path(options["counter"]).open("r+b", buffering=0) as counter:
        while True:
            with turns.take():
                step()
            count += 1
            os.pwrite(counter.fileno(), count.to_bytes(8, "little"), 0)
            if count == 5:
                print("ready", flush=True)


if __name__ == "__main__":
    answer(
        {
            "push": push,
            "stream": stream,
            "compute": compute,
            "plain": plain,
            "paced": paced,
            "flood": flood,
        }
    )
