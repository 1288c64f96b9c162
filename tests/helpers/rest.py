"""A real aggregator without broker and edges.

Its driver is fed by hand, its REST interface is a real uvicorn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import torch
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from tacit_services.aggregator.api.operator import Operator
from tacit_services.aggregator.api.routes import create_app
from tacit_services.aggregator.assembly import Surroundings, assemble
from tacit_services.aggregator.reading import Health, RunReading
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.journal.store import open_store
from tacit_services.transport.mqtt import Connection, Inbound

from tacit.algorithms.mapa.mapa import MapaServer
from tacit.config import RunFile
from tacit.models import Model
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.run_files import definition_text, roomy, run_file, toml
from tests.helpers.servers import HOST
from tests.helpers.web import listening

CHUNK = 1 << 18
TOKEN = "a-token-for-the-tests-only"
READ_TOKEN = "a-token-that-only-reads"
RUN_FILE = toml(
    {
        "run": {"updates": 6},
        "algorithm": {"name": "mapa", "max_staleness": 2},
        "privacy": {"noise_multiplier": 1.0, "clip": 1.0, "batch": 32},
        "edges": {"count": 3},
    }
)


class Silent:
    """A way to the broker that is never opened: what the driver publishes waits in its queue.

    A test says what is shown of it.
    """

    up = False
    reconnects = 0
    refused: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.connection = Connection(f"{HOST}:1", "test", [], lambda inbound: None)


class Rig:
    """One run, in memory, with what tests may do to it."""

    def __init__(
        self,
        folder: Path,
        token: str | None = TOKEN,
        more: str = "",
        read_token: str | None = None,
        run: RunFile | None = None,
    ) -> None:
        """Build the rig; `more` are sections of the run file, and `run` is another one."""
        self.run = run = run or run_file(RUN_FILE, more)
        definition = run.define()
        self.model: Model = definition.build_model()
        self.role = MapaServer(definition, self.model)
        self.link = Silent()
        store = open_store("memory://", "run")
        surroundings = Surroundings("run", store, self.link, max_message=1 << 24, chunk=CHUNK)
        self.live, self.pipeline, self.driver = assemble(
            roomy(run), self.role, self.model, surroundings
        )
        self.driver.recover()
        self.needed = 0  # edges that the run is shown to wait for
        self.run_status = RunStatus(definition, self, folder / "metrics.jsonl")
        self.run_status.resumed()
        self.operator = Operator(token)
        self.app = create_app(self.run_status, self.operator, self.model, read_token=read_token)
        self._seq = 0

    def reading(self) -> RunReading:
        """Return a reading of the run now."""
        return replace(self.live.reading(), needed=self.needed)

    def health(self) -> Health:
        """Return whether the run can go on."""
        return self.live.health()

    def hello(self, edge: str, *, multiplier: float = 1.0, pushes: int = 0) -> None:
        """Bring `edge` online."""
        hello = pb.Hello(
            epsilon=8.0,
            delta=1e-5,
            mechanism="gaussian",
            noise_variance=0.1,
            clip_min=0.1,
            clip_max=10,
            definition=definition_text(self.run),
        )
        hello.spent.extend(_spent(multiplier, pushes))
        self.live.presence[edge] = "online"
        self.send(edge, pb.Meta(hello=hello))

    def update(
        self,
        edge: str,
        *,
        multiplier: float = 1.0,
        pushes: int = 1,
        base: int | None = None,
        charged: int = 0,
    ) -> None:
        """Push as `edge`: all its history is `pushes` releases at noise `multiplier`."""
        version = self.role.version if base is None else base
        update = pb.Update(base_version=version, clip=1.0, spent=_spent(multiplier, pushes))
        if charged:
            update.charged.count, update.charged.head = charged, bytes([charged]) * 32
        self.send(
            edge,
            pb.Meta(update=update),
            torch.full((self.model.size,), 0.01 * (self.role.version + 1)),
        )

    def send(
        self, edge: str, meta: pb.Meta, tensor: torch.Tensor | None = None, seq: int | None = None
    ) -> None:
        """Deliver any envelope, as the broker would."""
        self._seq += 1
        number = self._seq if seq is None else seq
        meta.run, meta.edge, meta.seq, meta.schema_hash = (
            "run",
            edge,
            number,
            self.model.schema_hash(),
        )
        topic = topics.up("run", edge, number, 0)
        parts = wire.split(wire.encode(meta, tensor), CHUNK)
        for part in parts:
            self.pipeline.hear(Inbound(topic, part, lambda: None))
        self.pipeline.accept(0.0)


def _spent(multiplier: float, pushes: int) -> list[pb.Spend]:
    return (
        [pb.Spend(sampling_rate=0.07, noise_multiplier=multiplier, count=pushes)] if pushes else []
    )


@contextmanager
def controlled(rig: Rig) -> Iterator[None]:
    """Let a driver's thread enter what the operator asks for, and do nothing else."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.005):
            rig.operator.enter(rig.driver)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def served(rig: Rig) -> Iterator[str]:
    """Serve the rig's REST interface, and yield its URL."""
    with controlled(rig), serving(rig.app, rig.operator) as url:
        yield url


@contextmanager
def serving(app: FastAPI, operator: Operator) -> Iterator[str]:
    """Serve a REST interface on a free loopback port, and yield its URL.

    It ends as the aggregator ends it.
    """
    with listening(app) as address:
        try:
            yield f"http://{address}"
        finally:
            operator.close()


class Stage:
    """One server for the rigs of many tests, of which each would take 0.2 s to start and stop."""

    def __init__(self) -> None:
        self.url = ""
        self._app: FastAPI | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None
        await self._app(scope, receive, send)

    @contextmanager
    def showing(self, rig: Rig) -> Iterator[str]:
        """Serve this rig's REST interface; yields the URL."""
        self._app = rig.app
        with controlled(rig):
            try:
                yield self.url
            finally:
                rig.operator.close()


@contextmanager
def staged() -> Iterator[Stage]:
    """Yield a stage, on a free loopback port."""
    stage = Stage()
    with listening(stage, lifespan="off") as address:
        stage.url = f"http://{address}"
        yield stage


def problem(response: httpx.Response, status: int) -> str:
    """Return the detail of a problem+json answer, which must be complete."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["title"]
    assert body["type"]
    return str(body["detail"])
