"""One row of the table under one seed: a run, its fault, and what came of it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit_lab.bench.faults.fault_plan import FaultPlan, Moment, Row
from tacit_lab.bench.faults.federation import Federation, Founder, RunFolders

_PAUSE_S = 0.02
_LOOK_S = 0.5  # between two looks at what has died


@dataclass
class TrialOutcome:
    """finished: results are out. wall_s: from the first work given out to the results."""

    finished: bool
    wall_s: float
    updates: int
    lost: int
    by_hand: list[str]
    failures: list[str]
    fault_at_s: float | None
    load: float
    evidence: dict[str, Any] = field(default_factory=dict)


class Fault:
    """The fault of a row: begins at its moment, and ends by itself after its time."""

    def __init__(self, plan: FaultPlan, row: Row, moment: Moment, federation: Federation) -> None:
        self._plan = plan
        self._row = row
        self._moment = moment
        self._federation = federation
        self._began: float | None = None
        self._ended = False
        self._sent = 0
        self._filler = federation.place.server / "filler"

    @property
    def began(self) -> float | None:
        """When it began."""
        return self._began

    def look(self, updates: int) -> None:
        """Begin, go on or end, as it is time."""
        if self._row.name in ("nothing", "large-model") or self._ended:
            return
        if self._began is None:
            if self._is_time(updates):
                self._began = time.monotonic()
                self._begin()
            return
        if self._row.name == "disk-full":
            fill(self._filler)
        if self._row.seconds and time.monotonic() >= self._began + self._plan.seconds(self._row):
            self._ended = True
            self._end()

    def _is_time(self, updates: int) -> bool:
        if self._row.name == "slow-site":
            return True
        if updates < self._moment.updates:
            return False
        if self._row.name != "link-down":
            return True
        link = self._federation.links[self._moment.site]
        self._sent = self._sent or link.up
        return link.up - self._sent >= self._federation.place.task.model_bytes / 2

    def _begin(self) -> None:
        federation = self._federation
        site = self._moment.site
        if self._row.name == "link-down":
            federation.links[site].go_dark()
        elif self._row.name == "slow-site":
            federation.links[site].rate /= self._row.factor
            federation.slow_down(site, self._row.factor)
        elif self._row.name in ("site-gone", "site-reboot"):
            federation.links[site].go_dark()  # nobody says goodbye
            federation.kill_site(site)
        elif self._row.name == "disk-full":
            fill(self._filler)
        else:
            federation.kill_server()

    def _end(self) -> None:
        federation = self._federation
        site = self._moment.site
        if self._row.name in ("link-down", "site-reboot"):
            federation.links[site].come_back(cut=True)
        if self._row.name == "site-reboot":
            federation.start_site(site)
        elif self._row.name == "disk-full":
            self._filler.unlink()
        elif self._row.name.startswith("server-killed"):
            federation.start_server()


def fill(path: Path) -> None:
    """Let this file take all that is free on its disk."""
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            for size in (4096, 256, 1):
                with contextlib.suppress(OSError):
                    file.write(bytes(size))


@contextmanager
def places(plan: FaultPlan, row: Row, seed: int) -> Iterator[RunFolders]:
    """Yield the folders of a run; the server's is a small disk where the row fills it."""
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as name:
        server = Path(name) / "server"
        server.mkdir()
        if not row.disk_mib:
            yield RunFolders(Path(name), server, plan.task_of(row), seed)
            return
        size = f"size={row.disk_mib}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(server)], check=True)
        try:
            yield RunFolders(Path(name), server, plan.task_of(row), seed)
        finally:
            subprocess.run(["umount", "-l", str(server)], check=True)


def trial(
    plan: FaultPlan, row: Row, seed: int, founder: Founder, undisturbed_s: float | None
) -> TrialOutcome:
    """Run it. undisturbed_s: the system's time without a fault, where it is known."""
    with places(plan, row, seed) as place:
        federation = founder(place)
        try:
            federation.begin()
            fault = Fault(plan, row, plan.moment(row, seed), federation)
            limit = max(plan.limit_s, plan.limit_factor * (undisturbed_s or 0.0))
            return _watched(plan, federation, fault, limit)
        finally:
            federation.stop()


def _watched(plan: FaultPlan, federation: Federation, fault: Fault, limit: float) -> TrialOutcome:
    began = time.monotonic()
    by_hand: list[str] = []
    failures: list[str] = []
    lost = most = 0
    moved = looked = began
    while not federation.results() and time.monotonic() - began < limit:
        now = time.monotonic()
        updates = federation.updates()
        if updates != most:
            most = updates
            moved = now
        fault.look(updates)
        if now - looked > _LOOK_S:
            looked = now
            federation.tend()
        failure = federation.failure()
        if failure or now - moved > plan.patience_s:
            failures.append(failure or f"nothing for {plan.patience_s:.0f} s")
            action = federation.by_hand()
            if not action or len(by_hand) > 1:
                break
            lost += most
            by_hand.append(action)
            moved = time.monotonic()
        time.sleep(_PAUSE_S)
    finished = federation.results()
    wall = time.monotonic() - began
    return TrialOutcome(
        finished=finished,
        wall_s=round(wall, 2),
        updates=federation.updates(),
        lost=lost + federation.lost(),
        by_hand=by_hand,
        failures=failures,
        fault_at_s=None if fault.began is None else round(fault.began - began, 2),
        load=round(os.getloadavg()[0], 2),
        evidence=federation.evidence() if finished else {},
    )
