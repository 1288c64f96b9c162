"""An edge's machine on a simulated network: one folder on disk, and one process after another.

A process is the product's own loop, session, policy, outbox, ledger and role, run in the test's
thread: where it would wait for its broker, the simulated network goes on instead. It may die at
every point where a real one can (`points`), and its disk is then as SQLite has left it.

    edge = SimulatedEdge(network, run, "run", folder)
    edge.at("after the commit", edge.die, number=2)
    with pytest.raises(Killed):
        edge.run()
    assert edge.run() == "all updates applied"
"""

from __future__ import annotations

import random
import sqlite3
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from tacit_services.transport.mqtt import Inbound, Will
from tacit_services.worker.computing import Computing
from tacit_services.worker.contract import BrokerConnection, LoopSettings, Worker
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.mailbox import WAIT, Mailbox, Sign
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.release_delay import no_delay
from tacit_services.worker.session import Session, State
from tacit_services.worker.tasks import Tasks, nothing_kept

from tacit.algorithms import registry
from tacit.config import RunFile
from tacit.config.definition import Definition
from tacit.datasets import PrivateRows
from tacit.models import Model
from tacit.privacy.ledger import Ledger, read_chains
from tacit.privacy.ledger.chain import Charge
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.release import Releaser
from tacit.protocol import topics, wire
from tests.helpers.run_files import definition_text
from tests.helpers.simulated_network import Parcel, SimulatedNetwork, Timeline

OWNER = b"an identity's id"
_OFFSET = struct.Struct("<20xQ")  # where a part begins in its envelope, in the part's header
_LOADED: dict[tuple[str, int], tuple[Plan, PrivateRows]] = {}
_DEFINED: dict[int, tuple[RunFile, tuple[Definition[Any], Model]]] = {}


class Killed(BaseException):
    """The simulated process has died."""


class SimulatedMailbox(Mailbox):
    """A mailbox whose waiting lets the simulated time pass."""

    def __init__(
        self, timeline: Timeline, point: Callable[[str], None], seconds: float = WAIT
    ) -> None:
        """seconds: for which `take` waits."""
        super().__init__()
        self._timeline, self._point, self._seconds = timeline, point, seconds

    def take(self, *, wait: bool) -> Iterator[Inbound | Sign]:
        """Yield all that has come; let time pass where nothing has."""
        self._timeline.look()
        if wait:
            self._timeline.run(self._seconds, until=lambda: not self._queue.empty())
        for item in super().take(wait=False):
            self._point("before a message is heard")
            yield item
            self._timeline.look()


class MortalLedger(Ledger):
    """A ledger whose process may die around every commit."""

    def __init__(self, path: Path, dataset: str, point: Callable[[str], None]) -> None:
        super().__init__(path, dataset)
        self._point = point
        # The machine outlives its processes here, and with it all that was written: half the time.
        self._db.execute("PRAGMA synchronous = OFF")

    @contextmanager
    def transaction(self, ahead: Charge | None = None) -> Iterator[sqlite3.Connection]:
        """As the ledger's."""
        self._point("before the commit")
        with super().transaction(ahead) as db:
            yield db
            self._point("in the commit")
        self._point("after the commit")


class SimulatedComputing(Computing):
    """Computing that takes simulated time, and in which the process may die."""

    def __init__(
        self, timeline: Timeline, point: Callable[[str], None], seconds: Callable[[], float]
    ) -> None:
        super().__init__(CpuTurns(None), 1.0)
        self._timeline, self._point, self._seconds = timeline, point, seconds

    @contextmanager
    def turn(self, stop: threading.Event) -> Iterator[None]:
        """As the product's; then simulated time passes."""
        self._point("before computing")
        with super().turn(stop):
            yield
        self._point("after computing")
        self._timeline.run(self._seconds())


class ObservedTasks(Tasks):
    """The policy of an edge, with its session for a test to see."""

    session: Session | None = None

    def working(
        self, session: Session, connection: BrokerConnection
    ) -> AbstractContextManager[None]:
        """As the product's."""
        self.session = session
        return super().working(session, connection)


class SimulatedEdge:
    """Edge `number` of a run.

    patience, chunk: the loop's settings. computing: simulated seconds of one task. standings: what
    its presence said. points: how often each point was passed. stop: the signal to end. deaths:
    processes that were killed. idle: seconds after which a process without messages looks at the time.
    """

    idle = WAIT

    def __init__(
        self,
        network: SimulatedNetwork,
        run: RunFile,
        run_id: str,
        folder: Path,
        *,
        number: int = 0,
        patience: float = 30.0,
        chunk: int = 1 << 18,
        computing: float = 0.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """uniform: draws the random part of a session's pauses."""
        self._uniform = uniform
        self.name, self.folder, self.run_id = f"edge-{number}", folder, run_id
        self.computing, self.standings, self.stop = computing, [""], threading.Event()
        self.points: Counter[str] = Counter()
        self._network, self._timeline = network, network.timeline
        self._definition, self._model = defined(run)
        self._plan, self._rows = _plan_and_rows(run, number)
        self._dataset = run.source.name
        self._settings = LoopSettings(
            run_id,
            self._model.schema_hash(),
            self._model.size,
            chunk,
            patience,
            definition_text(run),
        )
        self._arranged: list[tuple[str, int, Callable[[], None]]] = []
        self._policy: ObservedTasks | None = None
        self._runs = False
        self._loop: WorkerLoop | None = None
        self.deaths = 0

    # -- what a test arranges and sees -------------------------------------------------------------

    def at(self, point: str, action: Callable[[], None], number: int = 1) -> None:
        """Do `action` when a point is passed for the `number`-th time; "": any point."""
        self._arranged.append((point, number, action))

    def die(self) -> None:
        """Kill the process that runs; an action for `at` or for a timeline."""
        raise Killed

    @property
    def session(self) -> Session:
        """The session of the process that runs, or ran last."""
        assert self._policy is not None
        assert self._policy.session is not None
        return self._policy.session

    @property
    def role(self) -> Worker:
        """The role of the process that runs, or ran last."""
        assert self._loop is not None
        return self._loop.role

    def is_in(self, state: State) -> bool:
        """Whether a process runs, and its session is in this state."""
        policy = self._policy
        session = None if policy is None or not self._runs else policy.session
        return session is not None and session.state is state

    @property
    def charged(self) -> int:
        """The releases that the ledger's file has, with what is charged ahead."""
        return charged_on_disk(self.folder)

    # -- its processes -----------------------------------------------------------------------------

    def run(self) -> str:
        """Run one process from its start to its end; return why it ended.

        Raises Killed, and what a worker's process ends with.
        """
        ledger = self.open_ledger(self.folder / "ledger.db", self._dataset)
        mailbox = SimulatedMailbox(self._timeline, self._pass, self.idle)
        presence, standing = topics.presence(self.run_id, self.name), ["online"]

        def present(state: str) -> None:
            standing[0] = state
            self.standings.append(state)
            connection.publish(presence, state.encode(), retain=True)

        def up() -> None:
            connection.publish(presence, standing[0].encode(), retain=True)
            mailbox.connected()

        loop = self._loop = self._begun(ledger, mailbox)
        connection = self._network.client(
            self.name,
            loop.subscriptions(),
            loop.receive,
            on_up=up,
            will=Will(presence, b"offline"),
            point=self._pass,
        )
        try:
            reason = loop.run(connection, self.stop, present)
            connection.stop(Will(presence, b"left"))
            ledger.close()
        except Killed:
            self.deaths += 1
            connection.kill()
            self.let_go(ledger)
            raise
        except BaseException:
            connection.stop()
            ledger.close()
            raise
        finally:
            self._runs = False
        return reason

    def run_on(self) -> str:
        """Run processes one after the other, until one ends otherwise than by being killed."""
        while True:
            try:
                return self.run()
            except Killed:
                continue

    def open_ledger(self, path: Path, dataset: str) -> Ledger:
        """Open the ledger of a process that begins."""
        return MortalLedger(path, dataset, self._pass)

    def let_go(self, ledger: Ledger) -> None:
        """Close the file as a killed process does: what was charged ahead stays charged."""
        ledger._db.close()

    def open_outbox(self, ledger: Ledger) -> Outbox:
        """Open the outbox of a process that begins."""
        return Outbox(ledger, self.run_id, OWNER, self.folder)

    def _begun(self, ledger: Ledger, mailbox: Mailbox) -> WorkerLoop:
        releaser = Releaser(self._plan, ledger, Random())
        role = registry.edge(self._definition, self.name, self._rows, self._model, releaser)
        outbox = self.open_outbox(ledger)
        computing = SimulatedComputing(self._timeline, self._pass, lambda: self.computing)
        policy = ObservedTasks(
            role, computing, nothing_kept, no_delay(), serves=False, clock=self._timeline
        )
        self._policy, self._runs = policy, True
        return WorkerLoop(
            *(role, outbox, self._settings, mailbox, policy),
            clock=self._timeline,
            uniform=self._uniform,
        )

    def _pass(self, point: str) -> None:
        for name in (point, ""):
            self.points[name] += 1
            for arranged in list(self._arranged):
                if arranged[:2] == (name, self.points[name]):
                    self._arranged.remove(arranged)
                    arranged[2]()


def defined(run: RunFile) -> tuple[Definition[Any], Model]:
    """Return what a run file defines, and its model, made once for all who ask."""
    kept = _DEFINED.get(id(run))
    if kept is None or kept[0] is not run:
        kept = _DEFINED[id(run)] = run, (run.define(), run.build_model())
    return kept[1]


def _plan_and_rows(run: RunFile, number: int) -> tuple[Plan, PrivateRows]:
    """Return what edge `number` owns, loaded once for all runs of the same definition."""
    key = (defined(run)[0].fingerprint, number)
    if key not in _LOADED:
        part = run.source.edge(number, None, Path())
        _LOADED[key] = run.plan(number, part.most), part.rows
    return _LOADED[key]


def charged_on_disk(folder: Path) -> int:
    """The releases that the ledger's file has, as another process reads it."""
    return sum(chain.count for chain in read_chains(folder / "ledger.db"))


def message_on_disk(folder: Path, run_id: str, seq: int) -> bytes | None:
    """A message as the outbox's file has it, read as another process does; None: not there."""
    query = "SELECT envelope FROM message WHERE run = ? AND seq = ?"
    with closing(sqlite3.connect(f"file:{folder}/ledger.db?mode=ro", uri=True)) as db:
        row = db.execute(query, (run_id, seq)).fetchone()
    if row is None or row[0] is not None:
        return None if row is None else bytes(row[0])
    return (folder / "messages" / f"{run_id}.{seq}").read_bytes()


class Witness:
    """Compares every byte that an edge sends, before it is on its way, with the edge's disk.

    It fails where a byte leaves that is not durable, where a number has two contents, and where
    more pushes have left than the ledger has charged. sent: for each message the times at which it,
    a part of it or a question about it left. contents: the messages. pushes: numbers of pushes.
    """

    def __init__(self, edge: SimulatedEdge, network: SimulatedNetwork) -> None:
        self._edge = edge
        self.sent: dict[int, list[float]] = {}
        self.contents: dict[int, bytes] = {}
        self.pushes: list[int] = []
        network.witness(self._see)

    def kind(self, seq: int) -> str:
        """Return the kind of a message."""
        return str(wire.decode(bytearray(self.contents[seq])).meta.WhichOneof("kind"))

    def _see(self, parcel: Parcel) -> None:
        edge = self._edge
        if parcel.sender != edge.name or parcel.topic.split("/")[3] != "up":
            return
        _, seq, payload = topics.sender(parcel.topic, parcel.payload)
        if seq == 0:  # a Want, which is no message
            return
        stored = message_on_disk(edge.folder, edge.run_id, seq)
        assert stored is not None, f"message {seq} leaves and is not on the disk"
        assert self.contents.setdefault(seq, stored) == stored, f"message {seq} has two contents"
        begin, body = _OFFSET.unpack_from(payload)[0], bytes(payload[wire.PART_HEADER :])
        assert stored[begin : begin + len(body)] == body, f"message {seq} is not what is stored"
        self.sent.setdefault(seq, []).append(parcel.sent_at)
        if self.kind(seq) == "update" and seq not in self.pushes:
            self.pushes.append(seq)
            assert edge.charged >= len(self.pushes), "a push leaves that is not charged"
