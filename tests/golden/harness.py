"""One run twice: over MQTT with threads for edges, and in process in the same arrival order."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import torch
from tacit_services.aggregator.assembly import Assembly, Surroundings, assemble
from tacit_services.aggregator.broker_link import BrokerLink
from tacit_services.journal.store import Store
from tacit_services.party.party_loop import party_loop
from tacit_services.peer.main import restore
from tacit_services.peer.peer_loop import peer_loop
from tacit_services.peer.peer_state import PeerState
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.tasks import task_loop

from tacit import datasets
from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.gossip.gossip_settings import Gossip
from tacit.algorithms.gossip.worker import GossipWorker
from tacit.algorithms.vafl import vafl_algorithm
from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.vafl_settings import Vafl
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.config import RunFile
from tacit.datasets.source import EdgePart
from tacit.digests import canonical
from tacit.models import Model
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Releaser
from tacit.protocol import topics, wire
from tacit.protocol.messages import Deadline
from tacit.protocol.vertical import Feedback, Request, Roster
from tacit.simulation.client_server import Simulator, Task
from tests.helpers.assembled import Assembled
from tests.helpers.servers import PATIENCE

SALT = b"tacit"


def sha256(role: ServerRole) -> str:
    """Return the digest of the role's parameters, bit for bit."""
    return hashlib.sha256(role.params.numpy().tobytes()).hexdigest()


def make_edge(
    run: RunFile,
    model: Model,
    number: int,
    seed: int | None,
    epsilon: float | None = None,
    part: EdgePart | None = None,
) -> EdgeRole:
    """Build edge `number` with its rows and, unless `seed` is None, predictable noise.

    `epsilon` and `part` replace its own.
    """
    part = part or run.source.edge(number, None, Path())
    random = Random(None if seed is None else seed + number)
    plan = run.plan(number, part.most)
    plan = plan if epsilon is None else replace(plan, epsilon=epsilon)
    return registry.edge(
        run.define(),
        f"edge-{number}",
        part.rows,
        model,
        Releaser(plan, Ledger(":memory:", run.source.name), random),
    )


def accepted(store: Store) -> list[tuple[str, str]]:
    """Return (edge, kind) of every journal entry, in accept order.

    An upload's kind is "step/request", what it answers.
    """
    records = []
    for record in store.read(0, 10**6):
        meta = wire.decode(bytearray(record.payload)).meta
        part = meta.update.part if meta.update.HasField("part") else None
        records.append(
            (
                record.edge,
                str(meta.WhichOneof("kind")) if part is None else f"{part.step}/{part.request}",
            )
        )
    return records


def ungated(run: RunFile) -> RunFile:
    """Return the same run, where every request is answered at once, as in process."""
    return run.model_copy(update={"edges": run.edges.model_copy(update={"min": 1, "share": "any"})})


class Told(Simulator):
    """A record of all that a party receives.

    Over MQTT the newest message counts, or, once the party works, the first.
    """

    def __init__(self, run: RunFile, server: ServerRole, edges: Sequence[EdgeRole | Party]) -> None:
        super().__init__(run.define(), server, edges)
        self.told: dict[tuple[str, str], Task] = {}

    def _assign(self, name: str, task: Task) -> None:
        match task:
            case Feedback(step=answered):
                self.told[name, f"{answered + 1}/0"] = task
            case Request(number=number):
                self.told[name, f"/{number}"] = task
            case Roster():
                self.told[name, "0/0"] = task
        super()._assign(name, task)

    def upload(self, name: str, kind: str) -> None:
        """Deliver the upload of `kind`, "step/request", to the server."""
        number = kind.partition("/")[2]
        self.tasks[name] = self.told[name, kind if number == "0" else f"/{number}"]
        self.answer(name)


def in_process(run: RunFile, order: list[tuple[str, str]], seed: int) -> ServerRole:
    """Run the simulator on the messages in the given arrival order.

    An edge computes on the model that it was given.
    """
    model = run.build_model()
    vertical = isinstance(run.algorithm, Vafl)
    edges = [
        make_party(run, k, seed) if vertical else make_edge(run, model, k, seed)
        for k in range(run.edges.count)
    ]
    simulator = Told(run, make_server(run, model), edges)
    for name, kind in order:
        if "/" in kind:
            simulator.upload(name, kind)
        elif kind == "hello":
            simulator.greet(name)
        elif kind == "deadline":
            timer = simulator.server.timer()
            assert timer is not None
            simulator.fold(Deadline(timer.number))
        else:
            simulator.answer(name)
    return simulator.server


def make_party(
    run: RunFile,
    number: int,
    seed: int | None,
    ledger: Ledger | None = None,
    root: Path | None = None,
) -> Party:
    """Build party `number` with its columns and, unless `seed` is None, predictable noise."""
    random = Random(None if seed is None else seed + number)
    ledger = ledger or Ledger(":memory:", run.source.name)
    splits = datasets.splits(run.source.name, root)
    return vafl_algorithm.party(
        vertical(run.define()), f"edge-{number}", number, splits, SALT, ledger, random
    )


def make_server(run: RunFile, model: Model, root: Path | None = None) -> ServerRole:
    """Build the server role, with the labels where the run is vertical."""
    if not isinstance(run.algorithm, Vafl):
        return registry.server(run.define(), model)
    return registry.server(
        run.define(),
        model,
        vafl_algorithm.labelled_records(datasets.splits(run.source.name, root), SALT),
    )


class MqttRun(Assembled):
    """A server driver in the calling thread and one thread per edge (or party), over a real
    broker.
    """

    serves = False  # whether parties go on after the end

    def __init__(self, run: RunFile, broker: str, store: Store, folder: Path, run_id: str) -> None:
        self.run, self.broker, self.store, self.folder, self.run_id = (
            run,
            broker,
            store,
            folder,
            run_id,
        )
        self.model = run.build_model()
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self._building = threading.Lock()
        self._together = threading.Barrier(
            run.edges.count, timeout=PATIENCE
        )  # else the first may have it all done
        self.link = BrokerLink(broker, f"{run_id}-aggregator", PATIENCE)
        self.assembly = self.assembled()

    def assembled(self) -> Assembly:
        """Assemble this run with an empty role, as after a restart."""
        surroundings = Surroundings(
            self.run_id, self.store, self.link, max_message=1 << 24, chunk=16 * 1024
        )
        run = ungated(self.run)
        return assemble(run.define(), make_server(self.run, self.model), self.model, surroundings)

    def serve(self, until: Callable[[], bool] = lambda: False) -> ServerRole:
        """Run the driver until the role halts or `until` says so; returns the role."""
        driver = self.driver
        driver.recover()
        stop = threading.Event()
        connection = self.connect()
        try:
            driver.train(stop, lambda: stop.set() if until() or self.failures else None)
            if self.live.role.halted:
                driver.farewell(threading.Event())
        finally:
            connection.stop()
        return self.live.role

    def connect(self) -> Connection:
        """Open the driver's connection to the broker."""
        heard = [topics.up_all(self.run_id), topics.presence_all(self.run_id)]
        return self.link.open(heard, self.pipeline.hear)

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
        torch.set_num_threads(
            1
        )  # a setting of each thread; with two, sums are split elsewhere and bits differ
        try:
            with ExitStack() as end:
                self._work(number, seed, end)
        except BaseException as failure:
            self.failures.append(failure)
            self._together.abort()
            raise

    def _work(self, number: int, seed: int | None, end: ExitStack) -> None:
        loop_settings = LoopSettings(
            self.run_id,
            self.model.schema_hash(),
            self.model.size,
            16 * 1024,
            patience=30.0,
            definition=canonical(self.run.agreed()),
        )
        # Python 3.11 cannot parse in two threads at once, and numpy parses the head of a data file.
        with self._building:
            loop = self._loop(number, seed, loop_settings, end)
        name = loop.role.edge
        end.enter_context(closing(loop.role.releaser.ledger))
        announced = threading.Event()

        def receive(inbound: Inbound) -> None:
            loop.receive(inbound)
            if inbound.topic == topics.model(self.run_id):
                announced.set()

        connection = Connection(
            self.broker,
            f"{self.run_id}-{name}",
            loop.subscriptions(),
            receive,
            on_up=loop.mailbox.connected,
        )
        end.callback(connection.stop)
        topic = topics.presence(self.run_id, name)
        connection.start(PATIENCE)
        connection.publish(topic, b"online", retain=True)
        self._together.wait()
        # An aggregator's announcement makes an edge repeat a Hello that is under way, whose second
        # answer may be a newer model: which of them it works on is not in the journal.
        assert announced.wait(PATIENCE)
        loop.run(
            connection,
            self.stop,
            lambda state: connection.publish(topic, state.encode(), retain=True),
        )

    def _loop(
        self, number: int, seed: int | None, loop_settings: LoopSettings, end: ExitStack
    ) -> WorkerLoop:
        section = self.run.algorithm
        if isinstance(section, Vafl):
            ledger = Ledger(self.folder / f"ledger-{number}.db", self.run.source.name)
            party = make_party(self.run, number, seed, ledger)
            outbox = Outbox(ledger, self.run_id)
            return party_loop(party, outbox, loop_settings, CpuTurns(None), serves=self.serves)
        role = make_edge(self.run, self.model, number, seed)
        outbox = Outbox(role.releaser.ledger, self.run_id)
        if not isinstance(section, Gossip):
            return task_loop(role, outbox, loop_settings, CpuTurns(None))
        assert isinstance(role, GossipWorker)
        state = end.enter_context(
            closing(PeerState(self.folder / f"peer-{number}.db", self.run_id))
        )
        restore(role, state)
        self.began(role)
        return peer_loop(role, outbox, loop_settings, state, section.report_every, CpuTurns(None))

    def began(self, role: GossipWorker) -> None:
        """Let a test watch a peer that is about to run."""
