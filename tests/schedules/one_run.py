"""One run under a schedule: its aggregator, store and edges, and all that must hold of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tacit_services.aggregator.entries import OPERATOR

from tacit.config import RunFile
from tacit.errors import StoreLost
from tests.helpers.simulated_network import PROMPT, Fate, Parcel, SimulatedNetwork
from tests.schedules import history as histories
from tests.schedules.disk import SimulatedDisk
from tests.schedules.faults import EDGES, FATES, Fault, Schedule
from tests.schedules.history import History, Violation, require
from tests.schedules.machine import Machine
from tests.schedules.member import Worker
from tests.schedules.server import NAME, ServerSettings, SimulatedAggregator, StoreServer
from tests.schedules.shared_time import SharedTime

MakeMachine = Callable[[SimulatedNetwork, str, int], Machine]


class OneRun:
    """All that a run needs: an aggregator, a store, edges, and the network between them."""

    def __init__(
        self,
        run_id: str,
        run: RunFile,
        schedule: Schedule,
        timeline: SharedTime,
        folder: Path,
        machine: MakeMachine,
    ) -> None:
        """folder: of its aggregator. machine: makes that of an edge, by its number."""
        self.run_id, self.run, self._schedule, self._timeline = run_id, run, schedule, timeline
        self.network = SimulatedNetwork(timeline)
        self.store = StoreServer(schedule.limit)
        folder.mkdir()
        self._journal_file = folder / "run.journal" if schedule.journal_file else None
        disk = SimulatedDisk(schedule.tears)
        self.server = SimulatedAggregator(
            *(self.network, timeline, run, self.store),
            ServerSettings(run_id, schedule.chunk, self._journal_file, disk),
        )
        machines = [machine(self.network, run_id, number) for number in range(EDGES)]
        self.machines = {machine.name: machine for machine in machines}
        self.history = History(self.machines, self.store)
        self.network.witness(self._see)
        self.network.fate = self._fate
        self._fates: dict[int, Fate] = {}
        self._parcels = 0
        self.violation: Violation | None = None

    def _see(self, parcel: Parcel) -> None:
        if self.violation is None:
            try:
                self.history.see(parcel)
            except Violation as violation:  # raised on the stack of a process, which may go on
                self.violation = violation

    def _fate(self, parcel: Parcel) -> Fate:
        self._parcels += 1
        return self._fates.get(self._parcels, (PROMPT,))

    def begin(self, later: float) -> None:
        """Begin everybody in so many seconds."""
        self._timeline.begin(self.server.live, later)
        for machine in self.machines.values():
            self._timeline.begin(machine.live, later)

    # -- faults ------------------------------------------------------------------------------------

    def arrange(self, faults: Sequence[Fault]) -> None:
        """Let these faults happen."""
        for fault in faults:
            self._arrange(fault)

    def _arrange(self, fault: Fault) -> None:
        if fault.kind == "message":
            self._fates[int(fault.at)] = FATES[fault.how]
        elif fault.kind not in ("kill", "power", "both"):
            if fault.kind == "older":
                self._timeline.after(fault.at / 2, self.store.copy)
            self._timeline.after(fault.at, self._event(fault))
        elif fault.who == NAME:
            dies = self.server.die if fault.kind == "kill" else self.server.lose_power
            self.server.at(int(fault.at), dies)
        else:
            self._arrange_death(self.machines[fault.who], fault)

    def _arrange_death(self, machine: Machine, fault: Fault) -> None:
        dies = machine.die if fault.kind == "kill" else machine.lose_power
        if fault.kind == "both":
            assert isinstance(machine, Worker)
            dies = machine.die_with_other
        machine.at("", dies, int(fault.at))

    def _event(self, fault: Fault) -> Callable[[], None]:
        """Return what happens at the fault's time."""
        events: dict[str, Callable[[], None]] = {
            "cut": lambda: self.network.cut(fault.who, fault.seconds),
            "outage": lambda: self.network.outage(fault.seconds),
            "away": lambda: self._away(fault.seconds),
            "silent": self._silence,
            "jump": lambda: self._timeline.jump(fault.seconds),
            "older": self._put_copy_back,
            "halt": lambda: self.server.halt("an operator"),
            "signal": lambda: self.machines[fault.who].stop.set(),
        }
        return events[fault.kind]

    def _away(self, seconds: float) -> None:
        """Let the store be away for a while."""
        self.store.away = True
        self._timeline.after(seconds, self._back)

    def _back(self) -> None:
        self.store.away = False

    def _put_copy_back(self) -> None:
        if not self.server.ending:  # a run that is over asks its store nothing
            self.store.put_copy_back()

    def _silence(self) -> None:
        self.store.silent = 1

    # -- its end -----------------------------------------------------------------------------------

    def ended(self) -> bool:
        """Return whether everybody has ended."""
        return bool(self.server.ending) and all(m.ending for m in self.machines.values())

    def given_up(self) -> bool:
        """Return whether an operator has to choose: it is said, and nothing goes on."""
        return isinstance(self.server.error, StoreLost)

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
            role.version == self._schedule.updates or halted or self._schedule.short,
            f"the run ends at {role.version}: {role.halt_reason}",
        )
        if self._journal_file is not None:
            histories.check_file(self._journal_file, self.store.entries)
        for name, machine in self.machines.items():
            pushes = len(history.pushes.get(name, ()))
            spare = machine.charged - pushes
            require(spare >= 0, f"{name}: {spare} charges beside {pushes} pushes")
