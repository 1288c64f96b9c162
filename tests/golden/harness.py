"""One run twice: over MQTT with threads for edges, and in process in the same arrival order."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from services.edge.loop import UP, EdgeLoop, Terms
from services.edge.main import schema_hash
from services.party.loop import PartyLoop
from services.runtime.driver import ServerDriver
from services.runtime.mqtt import Connection
from services.runtime.outbox import Outbox
from services.runtime.store import Store
from tacit import datasets, topics, wire
from tacit.algorithm_sections import Vafl
from tacit.algorithms import roles
from tacit.algorithms.edge import EdgeRole
from tacit.algorithms.server import ServerRole
from tacit.algorithms.vafl_party import Party
from tacit.config import RunFile
from tacit.messages import Deadline
from tacit.models import Model
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import Releaser
from tacit.privacy.sampling import Random
from tacit.simulate import Simulator

SALT = b"tacit"


def sha256(role: ServerRole) -> str:
    """Digest of the role's parameters, bit for bit."""
    return hashlib.sha256(role.params.numpy().tobytes()).hexdigest()


def make_edge(run: RunFile, model: Model, number: int, seed: int | None, epsilon: float | None = None) -> EdgeRole:
    """Edge `number` with its rows and, unless `seed` is None, predictable noise; `epsilon` instead of its own."""
    data = run.data
    labels = datasets.load_labels(data.dataset, "train", None)
    rows = datasets.shard(labels, number, shards=run.edges.count, method=data.partition, seed=run.run.seed)
    part = datasets.load(data.dataset, "train", None, rows)
    random = Random(None if seed is None else seed + number)
    plan = run.plan(number)
    plan = plan if epsilon is None else replace(plan, epsilon=epsilon)
    return roles.edge(run, f"edge-{number}", part, model, Releaser(plan, Ledger(":memory:", data.dataset), random))


def accepted(store: Store) -> list[tuple[str, str]]:
    """(edge, kind) of every journal entry, in accept order."""
    records = store.read(0, 10**6)
    return [(r.edge, str(wire.decode(bytearray(r.payload)).meta.WhichOneof("kind"))) for r in records]


def in_process(run: RunFile, order: list[tuple[str, str]], seed: int) -> ServerRole:
    """The simulator, its messages in the given arrival order; an edge computes on the model it was given."""
    model = run.build_model()
    edges = [make_edge(run, model, k, seed) for k in range(run.edges.count)]
    simulator = Simulator(run, roles.server(run, model), edges)
    for name, kind in order:
        if kind == "hello":
            simulator.greet(name)
        elif kind == "deadline":
            timer = simulator.server.timer()
            assert timer is not None
            simulator.fold(Deadline(timer.number))
        else:
            simulator.answer(name)
    return simulator.server


def make_party(run: RunFile, number: int, seed: int | None, ledger: Ledger | None = None) -> Party:
    """Party `number` with its columns and, unless `seed` is None, predictable noise."""
    random = Random(None if seed is None else seed + number)
    ledger = ledger or Ledger(":memory:", run.data.dataset)
    return roles.party(run, f"edge-{number}", number, datasets.splits(run.data.dataset, None), SALT, ledger, random)


def make_server(run: RunFile, model: Model) -> ServerRole:
    """The server role, with the labels where it is a vertical one's."""
    if not isinstance(run.algorithm, Vafl):
        return roles.server(run, model)
    return roles.server(run, model, roles.people(run, datasets.splits(run.data.dataset, None), SALT))


class MqttRun:
    """A server driver in the calling thread and one thread per edge (or party), over a real broker."""

    serves = False  # whether parties go on after the end

    def __init__(self, run: RunFile, broker: str, store: Store, folder: Path, run_id: str) -> None:
        self.run, self.broker, self.store, self.folder, self.run_id = run, broker, store, folder, run_id
        self.model = run.build_model()
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self.driver = self.new_driver()

    def new_driver(self) -> ServerDriver:
        """A driver with an empty role, as after a restart."""
        return ServerDriver(
            self.run_id,
            make_server(self.run, self.model),
            schema_hash(self.model),
            self.model.size,
            self.store,
            fingerprint=self.run.fingerprint(),
            snapshot_every=self.run.run.snapshot_every,
            max_message=1 << 24,
            chunk=16 * 1024,
        )

    def serve(self, until: Callable[[], bool] = lambda: False) -> ServerRole:
        """Run the driver until the role halts or `until` says so; returns the role."""
        driver = self.driver
        driver.recover()
        stop = threading.Event()
        connection = self.connect()
        try:
            driver.run(connection, stop, lambda: stop.set() if until() or self.failures else None)
            if driver.role.halted:
                driver.farewell(threading.Event())
        finally:
            connection.stop()
        return driver.role

    def connect(self) -> Connection:
        """The driver's, to the broker."""
        heard = [topics.up_all(self.run_id), topics.presence_all(self.run_id)]
        connection = Connection(self.broker, f"{self.run_id}-aggregator", heard, self.driver.inbox.put)
        connection.start(10.0)
        return connection

    def edge_threads(self, seed: int | None) -> list[threading.Thread]:
        """Start every edge; they end at Halt or when `stop` is set."""
        threads = [
            threading.Thread(target=self._edge, args=(number, seed), daemon=True)
            for number in range(self.run.edges.count)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _edge(self, number: int, seed: int | None) -> None:
        torch.set_num_threads(1)  # a setting of each thread; with two, sums are split elsewhere and bits differ
        outbox = Outbox(self.folder / f"outbox-{number}.db", self.run_id)
        terms = Terms(self.run_id, schema_hash(self.model), self.model.size, 16 * 1024, patience=30.0)
        loop = self._loop(number, seed, outbox, terms)
        name, ledger = loop.role.edge, loop.role.releaser.ledger
        present: Callable[[str], None] = lambda state: connection.publish(  # noqa: E731
            topics.presence(self.run_id, name), state.encode(), retain=True
        )
        connection = Connection(
            self.broker, f"{self.run_id}-{name}", loop.subscriptions(), loop.receive, on_up=lambda: loop.inbox.put(UP)
        )
        try:
            connection.start(10.0)
            present("online")
            loop.run(connection, self.stop, present)
        except BaseException as failure:
            self.failures.append(failure)
            raise
        finally:
            connection.stop()
            outbox.close()
            ledger.close()

    def _loop(self, number: int, seed: int | None, outbox: Outbox, terms: Terms) -> EdgeLoop:
        if not isinstance(self.run.algorithm, Vafl):
            return EdgeLoop(make_edge(self.run, self.model, number, seed), outbox, terms)
        ledger = Ledger(self.folder / f"ledger-{number}.db", self.run.data.dataset)
        return PartyLoop(make_party(self.run, number, seed, ledger), outbox, terms, serves=self.serves)
