"""When a push leaves: a fixed public delay D after its model came, however many rows were drawn.

An edge that computes only the rows it drew takes longer for more of them, and their number is
secret. So the push is made durable and held back until D, which is longer than the longest draw
takes. One that is not ready leaves at D + k·D/4, so that a late one tells as little as it can. D is
measured at the start on public random rows, by all edges of one machine together, and does not
change while the process lives. What this hides is measured, not proven (docs/privacy.md, "Time").
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tacit.algorithms.base.edge import EdgeRole
from tacit_services.worker.cpu_turns import CpuTurns

log = logging.getLogger("tacit.edge")
MARGIN = 1.25  # D over the longest trial
TRIALS, WARM = 12, 3
_LATE = 4  # a late push leaves at a multiple of D/4
_TOGETHER_SECONDS = 30.0  # that the edges of one machine wait for one another


class ReleaseDelay:
    """Holds pushes back. `late` counts those that were not ready after D."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """seconds: D of one step; a task of several has so many times as long."""
        self.seconds, self.late, self._clock = seconds, 0, clock

    def hold(self, came: float, steps: int, stop: threading.Event) -> None:
        """Return when the push of a model that came at `came` may leave; at once after `stop`."""
        if self.seconds:
            stop.wait(self.left(came, steps))

    def left(self, came: float, steps: int) -> float:
        """Seconds until then."""
        delay, took = self.seconds * steps, self._clock() - came
        quarters = max(0, math.ceil((took / delay - 1) * _LATE))
        self.late += quarters > 0
        return max(0.0, delay * (1 + quarters / _LATE) - took)


NO_DELAY = ReleaseDelay(0.0)  # of work that takes the same time whatever is drawn


def measured(
    role: EdgeRole, turns: CpuTurns, folder: Path, gathering: Path | None, edges: int
) -> ReleaseDelay:
    """The delay of `role`'s pushes; none where its step is of a fixed shape.

    folder: where pushes are made durable. gathering: a folder where the `edges` of this machine
    meet before they measure, so that they do it together; None: it is alone.
    """
    if role.alone is None:
        return NO_DELAY
    work = role.rehearsal()
    for _ in range(WARM):
        work()
    if gathering is not None:
        _meet(gathering, role.edge, edges)
    scratch, size = folder / "delay.trial", 4 * role.model.size
    trials = [_trial(work, turns, scratch, size) for _ in range(TRIALS)]
    scratch.unlink(missing_ok=True)
    delay = MARGIN * max(trials)
    log.info("%s: a push leaves %.1f ms after its model came", role.edge, 1000 * delay)
    return ReleaseDelay(delay)


def _trial(work: Callable[[], None], turns: CpuTurns, scratch: Path, size: int) -> float:
    """Seconds of a turn with one step and the ledger's commit, and of the outbox's commit."""
    began = time.monotonic()
    with turns.take():
        _commit(scratch, size)
        work()
    _commit(scratch, size)
    return time.monotonic() - began


def _commit(scratch: Path, size: int) -> None:
    with scratch.open("wb") as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())


def _meet(gathering: Path, edge: str, edges: int) -> None:
    """Wait until all edges of this machine are here, or for _TOGETHER_SECONDS."""
    gathering.mkdir(exist_ok=True)
    (gathering / edge).touch()
    pause, deadline = threading.Event(), time.monotonic() + _TOGETHER_SECONDS
    while len(list(gathering.iterdir())) < edges and time.monotonic() < deadline:
        pause.wait(0.01)
