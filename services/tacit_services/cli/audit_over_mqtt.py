"""Times of pushes as a reader of the broker sees them, for `tacit audit --thorough`."""

from __future__ import annotations

import queue
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from tacit.audit.statistics import ScoreValues
from tacit.audit.subject import EDGE, RUN, SCHEMA
from tacit.audit.times import WARM, Pair, turns
from tacit.audit.worlds import MessageSource
from tacit.errors import ServiceError
from tacit.protocol import topics, wire_down
from tacit_services.children.processes import Child, start_broker, stopping
from tacit_services.transport.mqtt import Connection, Inbound

PATIENCE = 60.0  # seconds for one push


def wire_seconds(edges: Pair, pushes: int) -> tuple[ScoreValues, ScoreValues]:
    """Return seconds from sending a model to the arrival of the push, of two edges in random order.

    It is measured over a real broker. Raises ServiceError when a push does not come.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    with _broker() as address, ExitStack() as end:
        asks = [
            end.enter_context(_over(address, f"edge-{n}", box))
            for n, box in enumerate((edges.strange, edges.plain))
        ]
        for which in turns(pushes):
            seconds[which].append(asks[which]())
    return np.array(seconds[0][WARM:]), np.array(seconds[1][WARM:])


@contextmanager
def _broker() -> Iterator[str]:
    children: list[Child] = []
    with tempfile.TemporaryDirectory() as folder, stopping(children):
        yield start_broker(Path(folder), children).address


@contextmanager
def _over(broker: str, name: str, source: MessageSource) -> Iterator[Callable[[], float]]:
    """Put an edge behind the broker; yields a call that asks it once and returns the seconds."""
    down = topics.down(RUN, name, "model")
    up = topics.up(RUN, name, 1, 0)
    models: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
    pushes: queue.SimpleQueue[float] = queue.SimpleQueue()
    edge = Connection(broker, f"{RUN}-{name}", [down], models.put)
    server = Connection(
        broker, f"{RUN}-asks-{name}", [up], lambda inbound: _arrived(inbound, pushes)
    )
    payload = wire_down.down(RUN, EDGE, source.message, SCHEMA)

    def ask() -> float:
        began = time.perf_counter()
        server.publish(down, payload)
        try:
            models.get(timeout=PATIENCE).done()
            edge.publish(up, source())
            return pushes.get(timeout=PATIENCE) - began
        except queue.Empty as error:
            raise ServiceError(f"audit: no push within {PATIENCE:.0f} s over the broker") from error

    with ExitStack() as end:
        for connection in (edge, server):
            end.callback(connection.stop)
            connection.start(PATIENCE)
        yield ask


def _arrived(inbound: Inbound, pushes: queue.SimpleQueue[float]) -> None:
    pushes.put(time.perf_counter())
    inbound.done()
