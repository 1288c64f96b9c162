"""An aggregator that sends one model for ever, and sees what an edge lets it see: times, lengths,
presence.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tacit_services.transport.mqtt import Connection, Inbound
from torch import Tensor

from tacit.models import Model
from tacit.protocol import topics, wire, wire_down
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import GlobalModel
from tests.helpers.processes import Deployment, Service
from tests.helpers.servers import PATIENCE, wait_for

CHUNK = 1 << 18


class ModelSender:
    """Answers each message of the edge's with a receipt and `params`.

    seconds, lengths: of each push. presence: all that was said of the edge.
    """

    def __init__(
        self, run: Deployment, edge: str, model: Model, params: Tensor, clip: float
    ) -> None:
        self.seconds: list[float] = []
        self.lengths: list[int] = []
        self.presence: list[str] = []
        self._run, self._edge, self._schema, self._asked = (
            run.run_id,
            edge,
            model.schema_hash(),
            0.0,
        )
        self._message, self._lock = GlobalModel(1, params, clip), threading.Lock()
        names = [topics.up_all(run.run_id), topics.presence(run.run_id, edge)]
        self.connection = Connection(run.broker, f"{run.run_id}-sends", names, self._hear)

    def _hear(self, inbound: Inbound) -> None:
        received_at = time.perf_counter()
        if "/presence/" in inbound.topic:
            self.presence.append(inbound.payload.decode())
            inbound.done()
            return
        seq, payload = topics.read_numbered(0, inbound.payload)
        envelope = wire.Assembler(1 << 24).add(payload)
        inbound.done()
        if envelope is None:
            return
        meta = wire.decode(envelope).meta
        if meta.WhichOneof("kind") == "update":
            with self._lock:
                self.seconds.append(received_at - self._asked)
                self.lengths.append(len(envelope))
        receipt = pb.Receipt(status=pb.Receipt.ACCEPTED, last_seq=seq)
        answer = wire_down.down(self._run, self._edge, self._message, self._schema, receipt, seq)
        self._asked = time.perf_counter()
        down = topics.down(self._run, self._edge, "model")
        self.connection.publish(down, wire.part(answer, CHUNK, 0))


@contextmanager
def sending(run: Deployment, model: Model, params: Tensor, clip: float) -> Iterator[ModelSender]:
    """Yield a sender that is connected, and disconnect it at the end."""
    sender = ModelSender(run, "edge-0", model, params, clip)
    sender.connection.start(PATIENCE)
    try:
        yield sender
    finally:
        sender.connection.stop()


def await_pushes(sender: ModelSender, edge: Service, count: int, seconds: float = PATIENCE) -> None:
    """Return once so many pushes have come; AssertionError with its log if the edge ends before."""

    def so() -> bool:
        assert edge.process is not None
        assert edge.process.poll() is None, edge.log
        return len(sender.seconds) >= count

    wait_for(so, seconds)
