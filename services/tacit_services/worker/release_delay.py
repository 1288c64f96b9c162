"""The delay of a push: it leaves at a fixed public time D after its model came.

An edge that computes only the rows it drew takes longer for more of them, and their number is
secret. So the push is made durable and held back until D, which is longer than the longest draw
takes. One that is not ready leaves at D + k·D/4, so that a late one tells as little as it can.

D is measured on public random rows when the first model comes, which all edges get at once: so they
measure together. Edges whose identities lie in one folder, as on one machine, all take the longest
of theirs. It grows when several of the latest pushes were late, and goes back towards what was
measured while none is: who reads the wire has seen which were. What this hides is measured, not
proven (docs/privacy.md, "Time").
"""

from __future__ import annotations

import logging
import math
import shutil
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tacit.algorithms.base.edge import EdgeRole
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger_chain import Charge
from tacit_services.disk import files
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.outbox import Outbox

log = logging.getLogger("tacit.edge")
MARGIN = 1.25  # D over the median trial, which has twice as many rows as most draws
TRIALS, WARM = 12, 3
_LATE = 4  # a late push leaves at a multiple of D/4
_CHARGE = Charge(1.0, 1.0, "gaussian", secret=True)  # in a ledger of nobody's data
_LATEST, _MOST_LATE = 32, 3  # D grows when more than _MOST_LATE of the _LATEST pushes were late
_BACK = 0.9  # what D becomes of itself after _LATEST pushes of which none was late; then its square
_TOGETHER_SECONDS = 5.0  # the longest wait of one machine's edges for each other's delays


class ReleaseDelay:
    """Holds pushes back. `late` counts those that were not ready after D."""

    def __init__(
        self, measure: Callable[[], float], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """measure: gives D of one step in seconds, once; a task of several has so many times it."""
        self.late, self._measure, self._clock = 0, measure, clock
        self._seconds: float | None = None
        self._measured, self._back = 0.0, _BACK
        self._latest: deque[bool] = deque(maxlen=_LATEST)

    def starting(self, came: float) -> float:
        """Return when the delay of a model that came at `came` begins.

        That is then; for the first model, when D has been measured, which this call does.
        """
        if self._seconds is not None:
            return came
        self._seconds = self._measured = self._measure()
        return self._clock()

    @property
    def seconds(self) -> float:
        """D of one step; measured when it is first asked for."""
        if self._seconds is None:
            self._seconds = self._measured = self._measure()
        return self._seconds

    def hold(self, came: float, steps: int, stop: threading.Event) -> None:
        """Wait until the push of a model that came at `came` may leave, or until `stop`."""
        if self.seconds:
            stop.wait(self.left(came, steps))

    def left(self, came: float, steps: int) -> float:
        """Return the seconds until the push of a model that came at `came` may leave."""
        delay, took = self.seconds * steps, self._clock() - came
        quarters = max(0, math.ceil((took / delay - 1) * _LATE))
        self._note(quarters)
        return max(0.0, delay * (1 + quarters / _LATE) - took)

    def _note(self, quarters: int) -> None:
        """Note how late a push was; the one that is too many makes D what it has taken."""
        self.late += quarters > 0
        self._latest.append(quarters > 0)
        if quarters and sum(self._latest) > _MOST_LATE:
            self._change(self.seconds * (1 + quarters / _LATE), back=_BACK)
        elif len(self._latest) == _LATEST and not any(self._latest):
            self._change(max(self._measured, self._back * self.seconds), back=self._back**2)

    def _change(self, seconds: float, *, back: float) -> None:
        self._seconds, self._back = seconds, back
        self._latest.clear()


def no_delay() -> ReleaseDelay:
    """Return no delay, for work that takes the same time whatever is drawn."""
    return ReleaseDelay(lambda: 0.0)


def of_edge(role: EdgeRole, turns: CpuTurns, folder: Path, run: str) -> ReleaseDelay:
    """The delay of an edge's pushes; none where its step is of a fixed shape.

    folder: its identity's, where pushes are made durable; beside it lie those of the other edges of
    `run` on this machine.
    """
    if role.alone is None:
        return no_delay()
    work, meeting = role.rehearsal(), Meeting(folder.parent / "delays" / run, role.edge)

    def measure() -> float:
        meeting.begin()
        own = measured(work, turns, folder / "delay.trial", 4 * role.model.size)
        delay = meeting.longest(own)
        log.info("%s: a push leaves %.1f ms after its model came", role.edge, 1000 * delay)
        return delay

    return ReleaseDelay(measure)


def measured(work: Callable[[], None], turns: CpuTurns, scratch: Path, size: int) -> float:
    """Return MARGIN times the median of TRIALS of `work`.

    Each takes a turn, and writes as many durable bytes as a push has. scratch: a folder for them,
    made and deleted here.
    """
    for _ in range(WARM):
        work()
    scratch.mkdir(exist_ok=True)
    with closing(Ledger(scratch / "ledger.db", "trial")) as ledger:
        outbox, envelope = Outbox(ledger, "trial", folder=scratch), bytes(size)
        usual = statistics.median(_trial(work, turns, outbox, envelope) for _ in range(TRIALS))
    shutil.rmtree(scratch)
    return MARGIN * usual


def _trial(work: Callable[[], None], turns: CpuTurns, outbox: Outbox, envelope: bytes) -> float:
    """Seconds of a turn with one step, and of the commit of a message with the next charge."""
    seq, began = outbox.next_seq(), time.monotonic()
    with turns.take():
        work()
    outbox.put(seq, envelope, ahead=_CHARGE)
    took = time.monotonic() - began
    outbox.done(seq)
    return took


class Meeting:
    """The folder in which the edges of one machine agree on the longest of their delays."""

    def __init__(self, folder: Path, edge: str) -> None:
        self._folder, self._edge = folder, edge

    def begin(self) -> None:
        """Say that a delay will be said."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / self._edge).unlink(missing_ok=True)
        (self._folder / f"{self._edge}.measuring").touch()

    def longest(self, own: float) -> float:
        """State `own`; return the longest of all, once no edge is measuring.

        It waits for at most _TOGETHER_SECONDS.
        """
        files.write(self._folder / self._edge, str(own).encode("ascii"), files.PUBLIC)
        (self._folder / f"{self._edge}.measuring").unlink(missing_ok=True)
        pause, deadline = threading.Event(), time.monotonic() + _TOGETHER_SECONDS
        while list(self._folder.glob("*.measuring")) and time.monotonic() < deadline:
            pause.wait(0.01)
        said = [path for path in self._folder.glob("edge-*") if not path.suffix]
        return max(own, *(float(path.read_text(encoding="ascii")) for path in said))
