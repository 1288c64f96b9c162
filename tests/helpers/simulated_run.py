"""A run of one edge and an honest server on a simulated network, ready to be disturbed."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tacit_services.worker.session import State

from tacit.config import RunFile
from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.honest_server import HonestServer
from tests.helpers.run_files import MAPA, run_file
from tests.helpers.simulated_edge import SimulatedEdge, Witness
from tests.helpers.simulated_network import Parcel, SimulatedNetwork, Timeline

RUN = "run"
EDGE = "edge-0"
OVER = "all updates applied"  # why a run ends that nobody halts


@cache
def definition(updates: int, *, epsilon: float = 3.0, noise_multiplier: float = 0.8) -> RunFile:
    """The run file of a private run that ends after so many updates; an edge can pay for 17."""
    privacy = {"epsilon": epsilon, "noise_multiplier": noise_multiplier}
    return run_file(MAPA, run={"updates": updates}, edges={"count": 2}, privacy=privacy)


class SimulatedRun:
    """One run: its timeline, network, server, edge, and the witness of all that the edge sends.

    patience, chunk: settings of both sides. seed: of the session's pauses, which are a little random.
    """

    def __init__(
        self,
        folder: Path,
        *,
        updates: int = 4,
        patience: float = 30.0,
        chunk: int = 1 << 18,
        run: RunFile | None = None,
        seed: int = 1,
    ) -> None:
        random.seed(seed)
        run = definition(updates) if run is None else run
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline)
        self.server = HonestServer(self.network, run, RUN, chunk)
        self.edge = SimulatedEdge(self.network, run, RUN, folder, patience=patience, chunk=chunk)
        self.witness = Witness(self.edge, self.network)

    def once_in(self, state: State, action: Callable[[], None]) -> None:
        """Do `action` when the edge's first push is accepted and its session is then in `state`.

        A state without a task comes about as the server withholds it, until after the action.
        """

        def act() -> None:
            self.timeline.after(1.0, self.server.grant)
            action()

        def prepare() -> None:
            self.server.withholds = state in (State.UNKNOWN, State.WAITING, State.OVERDUE)
            if state is State.UNKNOWN:
                self.timeline.when(lambda: self.edge.is_in(State.WAITING), self.server.restart)
            self.timeline.when(lambda: len(self.server.pushes) == 1, wait)

        def wait() -> None:
            self.timeline.when(lambda: self.edge.is_in(state), act)

        self.timeline.when(lambda: len(self.witness.pushes) == 1, prepare)


def answers(parcel: Parcel) -> int:
    """Return the number of the message that a message to an edge has the receipt of; 0: none."""
    kind = parcel.topic.split("/")[5:6]
    if parcel.receiver != EDGE or kind not in (["receipt"], ["model"], ["control"]):
        return 0
    payload = parcel.payload if kind == ["receipt"] else parcel.payload[wire.PART_HEADER :]
    meta = wire.decode(bytearray(payload)).meta
    return meta.seq if meta.WhichOneof("kind") == "receipt" else meta.answered


def is_up(parcel: Parcel) -> bool:
    """Whether it is on its way from an edge to the server."""
    return parcel.topic.split("/")[3] == "up"


def is_model(parcel: Parcel) -> bool:
    """Whether it brings a model, or a part of it, to an edge."""
    return parcel.topic.split("/")[5:6] == ["model"]


def is_announcement(parcel: Parcel) -> bool:
    """Whether it is the retained announcement on its way to an edge."""
    return parcel.receiver == EDGE and parcel.topic.split("/")[3] == "model"


def receipt(
    status: pb.Receipt.Status, reason: str = "", *, retry_after_s: float = 0.0, last_seq: int = 0
) -> pb.Receipt:
    """A receipt, for a server's `verdicts`."""
    return pb.Receipt(status=status, reason=reason, retry_after_s=retry_after_s, last_seq=last_seq)
