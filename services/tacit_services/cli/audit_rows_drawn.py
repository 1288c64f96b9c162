"""Times of pushes whose edge computes drawn rows alone, as a reader of the broker sees them.

For `tacit audit --thorough`. The edge is a real one: its loop, its outbox and its ledger on disk,
and the delay that it measures. Only how many rows it draws is written down beside it, which nobody
else knows.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.audit.statistics import ScoreValues
from tacit.audit.subject import DELTA, EDGE, RUN
from tacit.datasets import Dataset
from tacit.datasets.edge_rows import EdgeRows
from tacit.errors import ServiceError
from tacit.models import Model, build
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.way import NotAlone
from tacit.privacy.release import Releaser
from tacit.protocol import topics, wire, wire_down
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import GlobalModel
from tacit_services.children.processes import Child, start_broker, stopping
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.worker import release_delay
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.tasks import task_loop

# About 16 of 64 rows, four more or less, each of which takes some milliseconds. The model is one
# payload, the largest that the broker takes: in several parts the time would be the transfer's.
MODEL = build("cnn", (1, 80, 80), 2, channels=(36, 36), kernel=5, hidden=())
ROWS = 64
RATE = 0.25
CLIP = 1.0
WARM = 10
# seconds for a push, on average; bytes of a payload
PATIENCE = 10.0
CHUNK = 1 << 18


class CountedRows(RowsAlone):
    """`RowsAlone` that writes down how many rows it drew each time."""

    def __init__(self, data: EdgeRows, model: Model, plan: Plan, random: Random) -> None:
        super().__init__(data, model, plan, random)
        self.counts: list[int] = []

    def draw(self) -> NDArray[np.int64]:
        """Return the rows of one draw, and note their number."""
        rows = super().draw()
        self.counts.append(len(rows))
        return rows


class ReceiptServer:
    """A server that answers every message with a receipt and the model, and notes the time.

    finished: that so many pushes have come.
    """

    def __init__(self, broker: str, pushes: int) -> None:
        self.seconds: list[float] = []
        self.done = threading.Event()
        self._pushes = pushes
        self._sent_at = 0.0
        self._model = GlobalModel(1, MODEL.init(1), CLIP)
        self.connection = Connection(broker, f"{RUN}-asks", [topics.up_all(RUN)], self._hear)

    def _hear(self, inbound: Inbound) -> None:
        """Take in a message; called on the network thread."""
        arrival = time.perf_counter()
        seq, payload = topics.read_numbered(0, inbound.payload)
        envelope = wire.Assembler(1 << 24).add(payload)
        inbound.done()
        if envelope is None:
            return
        if wire.decode(envelope).meta.WhichOneof("kind") == "update":
            self.seconds.append(arrival - self._sent_at)
        if len(self.seconds) >= self._pushes:
            self.done.set()
        receipt = pb.Receipt(status=pb.Receipt.ACCEPTED, last_seq=seq)
        answer = wire_down.down(RUN, EDGE, self._model, MODEL.schema_hash(), receipt, seq)
        self._sent_at = time.perf_counter()
        self.connection.publish(topics.down(RUN, EDGE, "model"), wire.part(answer, CHUNK, 0))


def seconds_and_rows(pushes: int, delayed: bool) -> tuple[ScoreValues, ScoreValues]:
    """Return, for each push, the seconds after its model, and the number of rows that it drew.

    delayed: whether pushes are held back, as an edge's are. Raises ServiceError where rows cannot
    be computed alone here, or pushes do not come.
    """
    torch.set_num_threads(1)
    children: list[Child] = []
    with tempfile.TemporaryDirectory() as name, stopping(children), ExitStack() as end:
        folder = Path(name)
        broker = start_broker(folder, children).address
        server = ReceiptServer(broker, WARM + pushes)
        end.callback(server.connection.stop)
        server.connection.start(PATIENCE)
        patience = threading.Timer(PATIENCE * (WARM + pushes), server.done.set)
        end.callback(patience.cancel)
        patience.start()
        counts = _work(broker, folder, server.done, end, delayed=delayed)
    if len(server.seconds) < WARM + pushes:
        raise ServiceError(f"audit: {len(server.seconds)} of {WARM + pushes} pushes came")
    some = slice(WARM, WARM + pushes)
    return np.array(server.seconds[some]), np.array(counts[some], dtype=np.float64)


def _work(
    broker: str, folder: Path, stop: threading.Event, end: ExitStack, *, delayed: bool
) -> list[int]:
    """Be an edge until `stop`; how many rows each of its pushes drew."""
    role, rows = _role(folder, end)
    identity_folder = folder / "identities" / "0"
    identity_folder.mkdir(parents=True)
    outbox = Outbox(role.releaser.ledger, RUN, folder=identity_folder)
    turns = CpuTurns(None)
    settings = LoopSettings(RUN, MODEL.schema_hash(), MODEL.size, CHUNK, PATIENCE, "{}")
    if delayed:
        delay = release_delay.of_edge(role, turns, identity_folder, RUN)
    else:
        delay = None
    loop = task_loop(role, outbox, settings, turns, delay=delay)
    connection = Connection(
        broker, f"{RUN}-{EDGE}", loop.subscriptions(), loop.receive, on_up=loop.mailbox.connected
    )
    end.callback(connection.stop)
    connection.start(PATIENCE)
    loop.run(connection, stop, lambda state: None)
    return rows.counts


def _role(folder: Path, end: ExitStack) -> tuple[GradientEdge, CountedRows]:
    x, y = MODEL.random_batch(ROWS, torch.Generator().manual_seed(1))
    ledger = end.enter_context(closing(Ledger(folder / "ledger.db", "audit")))
    plan = Plan("gaussian", RATE, ROWS * RATE, 1.0, CLIP, CLIP, math.inf, DELTA, rows_max=ROWS)
    data = Dataset(x, y, MODEL.classes, "audit").for_edge(MODEL.classes)
    random = Random()
    try:
        rows = CountedRows(data, MODEL, plan, random)
    except NotAlone as why:
        raise ServiceError(f"audit: {why}") from None
    return GradientEdge(EDGE, MODEL, Releaser(plan, ledger, random), rows), rows
