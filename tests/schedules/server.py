"""The aggregator on a simulated network: the product's own, process after process, and its store.

A process is what `assemble` builds: pipeline, reassembly, staging, checks, guard, journal, downlink,
scheduler and driver. The store is the one in memory, as a server of its own: it outlives the
aggregator, may be away, and may answer late or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from tacit_services.aggregator.assembly import Assembly, Surroundings, assemble
from tacit_services.aggregator.desertion import Desertion
from tacit_services.journal.journal_file import Writer
from tacit_services.journal.store import (
    Anchor,
    Appended,
    NewEntry,
    Saver,
    Snapshot,
    Store,
    StoredEntry,
    Verdict,
)
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.memory import MemoryRun, MemoryStore
from tacit_services.journal.store_with_file import StoreWithJournalFile
from tacit_services.transport.mqtt import Inbound

from tacit.algorithms import registry
from tacit.config import RunFile
from tacit.errors import Fenced, ServiceError, StoreLost, TacitError
from tests.helpers.simulated_edge import Killed, defined
from tests.helpers.simulated_network import SimulatedConnection, SimulatedNetwork
from tests.schedules.disk import SimulatedDisk
from tests.schedules.shared_time import LaterExecutor, SharedTime, SimulatedFilled, SimulatedStop

NAME = "aggregator"
KEY = b"a key of the test"
SAVING = 0.05  # seconds that a snapshot takes
CONNECT = 60.0  # seconds that a connection may take
OPERATOR_SECONDS = 5.0  # until an operator has put back what a store has lost
RECOVER_SECONDS = 1.0  # between two tries to take the run over


def _copied(run: MemoryRun) -> MemoryRun:
    return replace(
        run, journal=list(run.journal), last_seqs=dict(run.last_seqs), anchors=dict(run.anchors)
    )


class StoreServer:
    """The server of a store. runs: what it has. entries: all that it has accepted, in order.

    log: the same, with what it has lost since. lost: entries that an older copy of it has not, and
    that did not come again. forked: whether it went on from there.
    """

    def __init__(self, limit: int) -> None:
        self.runs: dict[str, MemoryRun] = {}
        self.limits = JournalLimits(limit, 1 << 30)
        self.entries: list[StoredEntry] = []
        self.log: list[StoredEntry] = []
        self.away = False
        self.silent = 0  # appends that it makes and does not answer
        self.starts = 0  # connections of before a start fail once
        self.lost: list[StoredEntry] = []
        self.forked = False
        self._copy: dict[str, MemoryRun] = {}
        self._newest: dict[str, MemoryRun] = {}
        self._all: list[StoredEntry] = []

    def copy(self) -> None:
        """Make a copy of all that it has."""
        self._copy = {name: _copied(run) for name, run in self.runs.items()}

    def put_copy_back(self) -> None:
        """Start again from the copy, as somebody does who restores a backup."""
        if self.starts or not self._copy:
            return
        self._newest = {name: _copied(run) for name, run in self.runs.items()}
        self._become(self._copy)
        last = max((run.position for run in self._copy.values()), default=0)
        self._all, self.lost = self.entries, self.entries[last:]
        self.entries = self.entries[:last]

    def recover(self) -> bool:
        """Put back what was lost, as an operator does; False: another history has gone on."""
        if not self.lost or self.forked:
            return False
        self._become(self._newest)
        self.entries, self.lost = self._all, []
        return True

    def _become(self, runs: dict[str, MemoryRun]) -> None:
        self.starts += 1
        for name, run in self.runs.items():
            for key in fields(MemoryRun):
                if key.name != "epoch":  # an aggregator of before is not let in again
                    setattr(run, key.name, getattr(_copied(runs[name]), key.name))
            run.epoch += 1

    def note(self, entry: StoredEntry) -> None:
        """Note what it has accepted."""
        self.forked = self.forked or bool(self.lost)
        self.lost = [lost for lost in self.lost if (lost.edge, lost.seq) != (entry.edge, entry.seq)]
        self.entries.append(entry)
        self.log.append(entry)

    def check(self) -> None:
        """Raise ServiceError while it is away."""
        if self.away:
            raise ServiceError("store: away")


class RemoteStore:
    """A process's connection to the store: it may fail, and its process may die around a write."""

    def __init__(self, server: StoreServer, run_id: str, point: Callable[[str], None]) -> None:
        self._server, self._run_id, self._point = server, run_id, point
        self._starts = server.starts
        self._inner = MemoryStore(run_id, server.limits, server.runs)

    def _reached(self) -> MemoryStore:
        self._server.check()
        if self._starts != self._server.starts:
            self._starts = self._server.starts
            raise ServiceError("store: connection lost")
        return self._inner

    def open(self, fingerprint: str) -> int:
        """See base.Store.open."""
        self._point("before the store is opened")
        return self._reached().open(fingerprint)

    def append(self, entries: Sequence[NewEntry]) -> list[Appended]:
        """See base.Store.append."""
        return self.begin(entries)()

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        """See base.Store.begin."""
        if not entries:
            return list
        self._point("before the append")
        answers = self._reached().begin(entries)()
        for entry, answer in zip(entries, answers, strict=True):
            if answer.verdict is Verdict.ACCEPTED:
                record = StoredEntry(answer.position, entry.edge, entry.seq, bytes(entry.payload))
                self._server.note(record)
        self._point("after the append")
        if self._server.silent:
            self._server.silent -= 1
            raise ServiceError("store: no answer")

        def answered() -> list[Appended]:
            self._point("before the store's answer is read")
            return answers

        return answered

    def stage(self) -> None:
        """See base.Store.stage: payloads are taken in whole."""

    def read(self, after: int, limit: int) -> list[StoredEntry]:
        """See base.Store.read."""
        return self._reached().read(after, limit)

    def replay(self, after: int, page: int) -> Iterator[StoredEntry]:
        """See base.Store.replay."""
        return self._reached().replay(after, page)

    def save(self, snapshot: Snapshot) -> None:
        """See base.Store.save."""
        self._reached().save(snapshot)

    def saver(self) -> Saver:
        """See base.Store.saver: it has a connection of its own."""
        other = RemoteStore(self._server, self._run_id, self._point)
        other._inner = self._inner
        return other

    def snapshot(self) -> Snapshot | None:
        """See base.Store.snapshot."""
        return self._reached().snapshot()

    def depth(self) -> tuple[int, int]:
        """See base.Store.depth."""
        return self._reached().depth()

    def duplicates(self) -> int:
        """See base.Store.duplicates."""
        return self._reached().duplicates()

    def last_seqs(self) -> dict[str, int]:
        """See base.Store.last_seqs."""
        return self._reached().last_seqs()

    def empty(self, fingerprint: str) -> None:
        """See base.Store.empty."""
        self._reached().empty(fingerprint)

    def anchors(self) -> dict[str, Anchor]:
        """See base.Store.anchors."""
        return self._reached().anchors()

    def close(self) -> None:
        """Do nothing."""


class SimulatedLink:
    """The aggregator's link to the simulated broker."""

    refused: frozenset[str] = frozenset()

    def __init__(self, network: SimulatedNetwork, point: Callable[[str], None]) -> None:
        self._network, self._point = network, point
        self._came_up = False
        self._connection: SimulatedConnection | None = None

    @property
    def connection(self) -> SimulatedConnection:
        """The open connection."""
        assert self._connection is not None
        return self._connection

    def kill(self) -> None:
        """Lose the connection with the process."""
        if self._connection is not None:
            self._connection.kill()

    def open(self, subscriptions: Sequence[str], hear: Callable[[Inbound], None]) -> None:
        """Connect. Raises ServiceError: not within CONNECT seconds."""

        def up() -> None:
            self._came_up = True

        self._connection = self._network.client(
            NAME, subscriptions, hear, on_up=up, point=self._point
        )
        self._network.timeline.run(CONNECT, lambda: self.connection.up)
        if not self.up:
            raise ServiceError("broker: no answer")

    def came_up(self) -> bool:
        """Return whether it has come up since this was last asked."""
        came_up, self._came_up = self._came_up, False
        return came_up

    @property
    def up(self) -> bool:
        """Connected now."""
        return self.connection.up

    @property
    def reconnects(self) -> int:
        """How often the connection has come up again."""
        return max(0, self.connection.connects - 1)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What an aggregator is started with.

    chunk: bytes of a payload. journal_file: None: it writes none. disk: its machine's.
    """

    run_id: str
    chunk: int
    journal_file: Path | None
    disk: SimulatedDisk


class SimulatedAggregator:
    """The aggregator of a run, process after process.

    ending: why its last process has ended; "": it has not. halts: how many entries the
    store had when an operator was told that the run is halted.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        timeline: SharedTime,
        run: RunFile,
        store: StoreServer,
        settings: ServerSettings,
    ) -> None:
        self._network, self._timeline, self._store = network, timeline, store
        self._run, self._settings = run, settings
        self._definition, self._model = defined(run)
        self._arranged: dict[int, Callable[[], None]] = {}
        self._requested = ""
        self._process = 0
        self._dies = self._lost_power = False
        self._writer: Writer | None = None
        self.halts: list[int] = []
        self.points: Counter[str] = Counter()
        self.deaths, self.ending = 0, ""
        self.lost = 0  # how often it has left as the store had lost messages
        self.error: TacitError | None = None
        self.assembly: Assembly

    def at(self, number: int, action: Callable[[], None]) -> None:
        """Do `action` when the `number`-th point is passed."""
        self._arranged[number] = action

    def die(self) -> None:
        """Kill the process that runs; an action for `at`."""
        self._dies = True
        self._link.kill()
        raise Killed

    def lose_power(self) -> None:
        """Kill the process with its machine; an action for `at`."""
        self._lost_power = True
        self.die()

    def _end_process(self) -> None:
        """Do what a system does for a process that has died: close its files, unlock them."""
        file = self._settings.journal_file
        if file is not None:
            if self._writer is not None and self._writer._file is not None:
                self._writer._file.close()
            if self._lost_power:
                self._settings.disk.crash(file.parent)
        self._lost_power = False

    def halt(self, reason: str) -> None:
        """Ask for the run's end, as an operator does."""
        self._requested = self._requested or reason

    def live(self) -> None:
        """Run process after process, until one ends by itself."""
        while not self.ending:
            self._process, self._dies = self._process + 1, False
            try:
                self.ending = self._serve()
            except Killed:
                self.deaths += 1
                self._end_process()
                self._timeline.run(0.3)
            except Fenced as error:
                self.error, self.ending = error, f"{type(error).__name__}: {error}"
                self._link.kill()
                self._end_process()
            except StoreLost as error:
                self._link.kill()
                self._end_process()
                self.lost += 1
                self._timeline.run(OPERATOR_SECONDS)
                if not self._store.recover():
                    self.error, self.ending = error, f"{type(error).__name__}: {error}"
            except TacitError as error:
                self.error, self.ending = error, f"{type(error).__name__}: {error}"
                self._link.kill()

    def _pass(self, point: str) -> None:
        if self._dies:
            raise Killed
        self.points[point] += 1
        self.points[""] += 1
        if action := self._arranged.pop(self.points[""], None):
            action()

    def _open_store(self) -> Store:
        """Return the store of a process that begins, with a journal file behind it or not."""
        settings = self._settings
        store = RemoteStore(self._store, settings.run_id, self._pass)
        if settings.journal_file is None:
            return store
        self._writer = Writer(settings.journal_file, settings.disk)
        return StoreWithJournalFile(store, self._writer, settings.run_id, self._run)

    def _assemble(self) -> Assembly:
        process = self._process
        self._link = SimulatedLink(self._network, self._pass)
        surroundings = Surroundings(
            self._settings.run_id,
            self._open_store(),
            self._link,
            1 << 24,
            self._settings.chunk,
            clock=self._timeline,
            key=KEY,
            saver=LaterExecutor(
                self._timeline, lambda: SAVING, lambda: self._dies or process != self._process
            ),
            filled=SimulatedFilled(self._timeline, self._pass),
        )
        role = registry.server(self._definition, self._model)
        return assemble(self._definition, role, self._model, surroundings)

    def _serve(self) -> str:
        stop = SimulatedStop(self._timeline, self._pass)
        self.assembly = run, pipeline, driver = self._assemble()
        link = self._link
        while True:
            try:
                driver.recover()
                break
            except ServiceError:
                stop.wait(RECOVER_SECONDS)
        link.open(run.subscriptions(), pipeline.hear)
        edges = self._definition.edges
        desertion = Desertion(run.reading, edges.count, edges.grace, self._timeline)

        def idle() -> None:
            if link.came_up():
                driver.announce()
            if self._requested and driver.halt(self._requested):
                self.halts.append(len(self._store.entries))
                self._requested = ""
            if (reason := desertion.reason()) is not None:
                driver.halt(reason)

        driver.train(stop, idle)
        if run.role.halted:
            driver.farewell(stop)
        link.connection.stop()
        driver.close()
        run.journal.store.close()
        return run.role.halt_reason or "stopped"
