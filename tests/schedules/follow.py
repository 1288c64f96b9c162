"""Runs under one schedule, from their start to their end, with everything that must hold of them."""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from tacit.config import RunFile
from tacit.errors import PrivacyError
from tests.helpers.run_files import MAPA, run_file
from tests.helpers.simulated_network import Parcel, SimulatedNetwork
from tests.schedules.disk import SimulatedDisk
from tests.schedules.faults import EDGES, Schedule
from tests.schedules.history import Violation, require
from tests.schedules.machine import Machine
from tests.schedules.member import LONG, SHORT, Member, Worker
from tests.schedules.one_run import OneRun
from tests.schedules.shared_time import SharedTime

RUN = "run"
SECOND = "second"
PATIENCE = 4.0
HEALED = 300.0  # seconds after which a run whose network is well again must have ended
_MEMORY = Path("/dev/shm")
_EVERYWHERE = ("outage", "away")  # one broker and one store serve all runs


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
    """The runs of a schedule: one, or two of the same edges, each of which has one ledger."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule = schedule
        self._folder = folder
        self._chance = random.Random(schedule.seed)
        self.timeline = SharedTime()
        self._run = definition(schedule.updates, schedule.snapshot_every)
        self._violation: Violation | None = None  # of both runs together
        self.members: list[Member] = []
        if schedule.runs > 1:
            lifetime = SHORT if schedule.short else LONG
            homes = [self._made(f"member-{number}") for number in range(EDGES)]
            self.members = [Member(home, lifetime) for home in homes]
        self.runs = [self._one_run(run_id) for run_id in (RUN, SECOND)[: schedule.runs]]
        for place, run in enumerate(self.runs):
            run.arrange([f for f in schedule.faults if f.run == place or f.kind in _EVERYWHERE])
            if self.members:
                run.network.witness(self._see)

    def _made(self, name: str) -> Path:
        path = self._folder / name
        path.mkdir()
        return path

    def _one_run(self, run_id: str) -> OneRun:
        folder = self._folder / f"server-{run_id}"
        return OneRun(run_id, self._run, self.schedule, self.timeline, folder, self._machine)

    def _machine(self, network: SimulatedNetwork, run_id: str, number: int) -> Machine:
        make = partial(Worker, self.members[number]) if self.members else Machine
        machine = make(
            *(network, self._run, run_id, self._made(f"edge-{number}-{run_id}")),
            number=number,
            patience=PATIENCE,
            chunk=self.schedule.chunk,
            computing=self.schedule.computing,
            uniform=self._chance.uniform,
        )
        machine.prepare(SimulatedDisk(self.schedule.tears), self.schedule.large)
        return machine

    def _see(self, parcel: Parcel) -> None:
        for number, member in enumerate(self.members):
            if parcel.sender == f"edge-{number}" and self._pushes(number) > member.charged:
                self._violation = Violation(f"{parcel.sender}: a push of two runs is not charged")

    def _pushes(self, number: int) -> int:
        """Return how many pushes of an edge have left, in all runs."""
        return sum(len(run.history.pushes.get(f"edge-{number}", ())) for run in self.runs)

    def follow(self) -> None:
        """Run to the end. Raises Violation."""
        for place, run in enumerate(self.runs):
            run.begin(place * self.schedule.apart)
        self.timeline.run(HEALED, until=self._over)
        late = [run for run in self.runs if not run.given_up() and not run.ended()]
        if (
            late and not self._over()
        ):  # a broker that has dropped a message says it to who comes again
            for run in late:
                run.network.outage(1.0)
            self.timeline.run(HEALED, until=self._over)
        self._check()

    def _over(self) -> bool:
        return bool(self._violations()) or all(run.ended() for run in self.runs)

    def _violations(self) -> list[Violation]:
        seen = [self._violation, *(run.violation for run in self.runs)]
        return [violation for violation in seen if violation is not None]

    def _check(self) -> None:
        for violation in self._violations():
            raise violation
        for run in self.runs:
            if not run.given_up():
                run.check()
        for number, member in enumerate(self.members):
            self._check_ledger(number, member)

    def _check_ledger(self, number: int, member: Member) -> None:
        """Check that a ledger is one chain, with a charge for each release that has left in both."""
        try:
            chain = member.chain()
        except (ValueError, PrivacyError) as error:
            raise Violation(f"edge-{number}: {error}") from error
        pushes = self._pushes(number)
        begun = sum(run.machines[f"edge-{number}"].begun for run in self.runs)
        most = (pushes + begun) * member.largest  # a process may end before its last charge leaves
        require(
            pushes <= chain.releases <= most,
            f"edge-{number}: {chain.releases} charges, {pushes} pushes of {begun} processes",
        )
        for spend in chain.history():
            pays = member.lifetime.left((), replace(spend, count=1))
            require(
                chain.releases <= pays,
                f"edge-{number}: {chain.releases} charges in a lifetime of {pays}",
            )


def follow(schedule: Schedule) -> None:
    """Run one schedule. Raises Violation."""
    folder = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        Simulation(schedule, folder).follow()
    finally:
        shutil.rmtree(folder)
