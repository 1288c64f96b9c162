"""A run under one schedule, from its start to its end, with everything that must hold of it."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tacit_services.aggregator.entries import OPERATOR

from tacit.config import RunFile
from tacit.errors import StoreLost
from tests.helpers.run_files import MAPA, run_file
from tests.helpers.simulated_network import PROMPT, Fate, Parcel, SimulatedNetwork
from tests.schedules import history as histories
from tests.schedules.disk import SimulatedDisk
from tests.schedules.faults import EDGES, FATES, Fault, Schedule
from tests.schedules.history import History, Violation, require
from tests.schedules.machine import Machine
from tests.schedules.server import NAME, ServerSettings, SimulatedAggregator, StoreServer
from tests.schedules.shared_time import SharedTime

RUN = "run"
PATIENCE = 4.0
HEALED = 300.0  # seconds after which a run whose network is well again must have ended
_MEMORY = Path("/dev/shm")


@cache
def definition(updates: int, snapshot_every: int) -> RunFile:
    """Return the run file of a private run; an edge can pay for 40 updates."""
    return run_file(
        MAPA,
        run={"updates": updates, "snapshot_every": snapshot_every},
        edges={"count": EDGES, "wait": 5.0},
        privacy={"epsilon": 8.0, "noise_multiplier": 0.8},
    )


class Simulation:
    """All that a run needs: an aggregator, a store, edges, and the network between them."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule = schedule
        self.run = definition(schedule.updates, schedule.snapshot_every)
        chance = random.Random(schedule.seed)
        self.timeline = SharedTime()
        self.network = SimulatedNetwork(self.timeline)
        self.store = StoreServer(schedule.limit)
        (folder / "server").mkdir()
        self.journal_file = folder / "server" / "run.journal" if schedule.journal_file else None
        disk = SimulatedDisk(schedule.tears)
        self.server = SimulatedAggregator(
            *(self.network, self.timeline, self.run, self.store),
            ServerSettings(RUN, schedule.chunk, self.journal_file, disk),
        )
        self.machines = {
            machine.name: machine
            for number in range(EDGES)
            for machine in [self._machine(number, folder, chance.uniform)]
        }
        self.history = History(self.machines, self.store)
        self.network.witness(self._see)
        self.network.fate = self._fate
        self._fates: dict[int, Fate] = {}
        self._parcels = 0
        self.violation: Violation | None = None
        for fault in schedule.faults:
            self._arrange(fault)

    def _machine(
        self, number: int, folder: Path, uniform: Callable[[float, float], float]
    ) -> Machine:
        home = folder / f"edge-{number}"
        home.mkdir()
        machine = Machine(
            *(self.network, self.run, RUN, home),
            number=number,
            patience=PATIENCE,
            chunk=self.schedule.chunk,
            computing=self.schedule.computing,
            uniform=uniform,
        )
        machine.prepare(SimulatedDisk(self.schedule.tears), self.schedule.large)
        return machine

    def _see(self, parcel: Parcel) -> None:
        if self.violation is None:
            try:
                self.history.see(parcel)
            except Violation as violation:  # raised on the stack of a process, which may go on
                self.violation = violation

    def _fate(self, parcel: Parcel) -> Fate:
        self._parcels += 1
        return self._fates.get(self._parcels, (PROMPT,))

    def _arrange(self, fault: Fault) -> None:
        if fault.kind == "message":
            self._fates[int(fault.at)] = FATES[fault.how]
        elif fault.kind not in ("kill", "power"):
            if fault.kind == "older":
                self.timeline.after(fault.at / 2, self.store.copy)
            self.timeline.after(fault.at, self._event(fault))
        elif fault.who == NAME:
            dies = self.server.die if fault.kind == "kill" else self.server.lose_power
            self.server.at(int(fault.at), dies)
        else:
            machine = self.machines[fault.who]
            dies = machine.die if fault.kind == "kill" else machine.lose_power
            machine.at("", dies, int(fault.at))

    def _event(self, fault: Fault) -> Callable[[], None]:
        """Return what happens at the fault's time."""
        events: dict[str, Callable[[], None]] = {
            "cut": lambda: self.network.cut(fault.who, fault.seconds),
            "outage": lambda: self.network.outage(fault.seconds),
            "away": lambda: self._away(fault.seconds),
            "silent": self._silence,
            "jump": lambda: self.timeline.jump(fault.seconds),
            "older": self._put_copy_back,
            "halt": lambda: self.server.halt("an operator"),
            "signal": lambda: self.machines[fault.who].stop.set(),
        }
        return events[fault.kind]

    def _away(self, seconds: float) -> None:
        """Let the store be away for a while."""
        self.store.away = True
        self.timeline.after(seconds, self._back)

    def _back(self) -> None:
        self.store.away = False

    def _put_copy_back(self) -> None:
        if not self.server.ending:  # a run that is over asks its store nothing
            self.store.put_copy_back()

    def _silence(self) -> None:
        self.store.silent = 1

    def follow(self) -> None:
        """Run to the end. Raises Violation."""
        self.timeline.begin(self.server.live)
        for machine in self.machines.values():
            self.timeline.begin(machine.live)
        self.timeline.run(HEALED, until=self._over)
        if isinstance(self.server.error, StoreLost):
            return  # an operator has to choose: it is said, and nothing goes on
        if not self._over():  # a broker that has dropped a message says it to who comes again
            self.network.outage(1.0)
            self.timeline.run(HEALED, until=self._over)
        if self.violation is not None:
            raise self.violation
        self.check()

    def _over(self) -> bool:
        return self.violation is not None or self.ended()

    def ended(self) -> bool:
        """Return whether everybody has ended."""
        return bool(self.server.ending) and all(m.ending for m in self.machines.values())

    def check(self) -> None:
        """Check the history of a run that has ended. Raises Violation."""
        if not self.store.lost:  # else an operator has to choose, and is told when an edge speaks
            self._check_whole()

    def _check_whole(self) -> None:
        endings = {NAME: self.server.ending} | {n: m.ending for n, m in self.machines.items()}
        require(self.ended(), f"somebody does not go on: {endings}")
        for who, error in [
            (NAME, self.server.error),
            *((name, machine.error) for name, machine in self.machines.items()),
        ]:
            require(error is None, f"{who} ends with an error: {error}")
        history, role = self.history, self.server.assembly.run.role
        histories.check_entries(history)
        histories.check_nothing_is_lost(history, role.halted)
        folded = histories.fold(self.run, self.store.entries)
        require(histories.same_model(role, folded), "the model is not the fold of the journal")
        for length in self.server.halts:
            promised = histories.fold(self.run, self.store.entries[:length])
            require(promised.halted, "an operator was told of a halt that the journal has not")
        halted = any(entry.edge == OPERATOR for entry in self.store.entries)
        require(
            role.version == self.schedule.updates or halted,
            f"the run ends at {role.version}: {role.halt_reason}",
        )
        if self.journal_file is not None:
            histories.check_file(self.journal_file, self.store.entries)
        for name, machine in self.machines.items():
            pushes = len(history.pushes.get(name, ()))
            spare = machine.charged - pushes
            require(spare >= 0, f"{name}: {spare} charges beside {pushes} pushes")


def follow(schedule: Schedule) -> None:
    """Run one schedule. Raises Violation."""
    folder = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        Simulation(schedule, folder).follow()
    finally:
        shutil.rmtree(folder)
