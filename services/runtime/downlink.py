"""What the aggregator says: models and halts to edges, receipts, and the retained announcement of the run's state."""

from __future__ import annotations

from services.runtime.mqtt import Connection
from tacit import topics, wire
from tacit._pb import wire_pb2 as pb
from tacit.messages import GlobalModel, Halt


class Downlink:
    """Encodes, cuts into chunks and publishes; `connection` is set before anything is said."""

    def __init__(self, run_id: str, schema: bytes, chunk: int) -> None:
        self.run_id, self.schema, self.chunk = run_id, schema, chunk
        self.connection: Connection | None = None

    def send(self, edge: str, message: GlobalModel | Halt, seq: int = 0, receipt: pb.Receipt | None = None) -> None:
        """A role's message to one edge; the receipt of its message `seq`, if given, goes with it."""
        kind = "model" if isinstance(message, GlobalModel) else "control"
        envelope = wire.down(self.run_id, edge, message, self.schema, receipt, seq)
        for part, payload in enumerate(wire.split(envelope, self.chunk)):
            self._publish(topics.down(self.run_id, edge, kind, part), payload)

    def receipt(self, edge: str, seq: int, receipt: pb.Receipt) -> None:
        """The answer to message `seq` alone."""
        meta = pb.Meta(run=self.run_id, edge=edge, seq=seq, receipt=receipt)
        self._publish(topics.down(self.run_id, edge, "receipt"), wire.encode(meta))

    def announce(self, epoch: int, state: str, model: GlobalModel) -> None:
        """Retain the run's state on the model topic; edges that see a new epoch send again what has no receipt."""
        assert self.connection is not None
        said = wire.announcement(
            self.run_id, epoch << 20 | self.connection.connects, state, model, self.schema,
            inline_below=self.chunk - 4096,
        )  # fmt: skip
        self._publish(topics.model(self.run_id), said, retain=True)

    def _publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        assert self.connection is not None
        self.connection.publish(topic, payload, retain=retain)
