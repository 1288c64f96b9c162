"""The delay of a push: it leaves at a fixed public time D after its model came.

An edge that computes only the rows it drew takes longer for more of them, and their number is
secret. The steps of a user's module may take longer for one row than for another. So every private
push is made durable and held back until D, which is longer than the longest draw takes. One that is
not ready leaves at the next whole multiple of D, and tells that the machine was late, which under
load is likelier with more rows.

So late pushes are made rare: each makes D a quarter longer. Only while many pushes in a row are not
late, D goes back towards what was measured. It grows to _TIMES what was measured, and a public
number of seconds. A push that is late then leaves at a further multiple. A reader of the
wire has seen which were late. D is measured on public random rows when the first model comes. All
edges get it at once, so they measure together. Edges whose identities lie in one folder, as on one
machine, all take the longest of theirs, at the start and later. D is fixed when a model comes, by
the pushes that have left before. What this hides is measured, not proven (docs/privacy.md, "Time").
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from tacit import file_lock, regular_file
from tacit.algorithms.base.edge import EdgeRole
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.chain import Charge
from tacit_services.disk import files
from tacit_services.worker.contract import Worker
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.outbox import Outbox

log = logging.getLogger("tacit.edge")
MARGIN = 1.25  # D over the median trial, which has twice as many rows as most draws
TRIALS = 12
WARM = 3
# trials of work that is slow: no longer than so, but so many
FEWEST = 3
_MOST_SECONDS = 20.0
_CHARGE = Charge(1.0, 1.0, "gaussian", secret=True)  # in a ledger of nobody's data
_LONGER = 1.25  # what D becomes of itself after a late push, however late it was
# and after so many that were not, one after the other; then its square
_QUIET = 64
_BACK = 0.9
_TIMES = 16.0  # the most that D becomes, in times of what was measured
MOST_SECONDS = 600.0  # nor does it grow above; what others state above it is not believed
_LIFE = ".life"
_MEASURING = ".measuring"
_STATED = 64  # bytes of a delay that is stated, at most
_TOGETHER_SECONDS = 5.0  # the longest wait of one machine's edges for each other's delays


class ReleaseDelay:
    """The delay by which pushes are held back. `late` counts those that were not ready after D."""

    def __init__(
        self,
        measure: Callable[[], float],
        agreed: Callable[[float], float] = lambda seconds: seconds,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """measure: gives D of one step in seconds, once; a task of several has so many times it.

        agreed: takes what this edge would have for D, and gives what all of its machine have.
        """
        self.late = 0
        self._measure = measure
        self._agreed = agreed
        self._clock = clock
        self._seconds: float | None = None  # D, from when a model comes until its push has left
        self._own_seconds = self._measured = (
            0.0  # what D is without the other edges, and was at first
        )
        # pushes that were not late since D has changed
        self._quiet = 0
        self._back = _BACK
        self._warned = False  # that D grows no more

    def starting(self, arrival: float) -> float:
        """Return when the delay of a model that came at `arrival` begins, and fix D for it.

        That is then; for the first model, when D has been measured, which this call does.
        """
        if self._seconds is not None:
            self._seconds = self._agreed(self._own_seconds)
            return arrival
        self._first()
        return self._clock()

    def _first(self) -> float:
        self._seconds = self._own_seconds = self._measured = self._measure()
        return self._seconds

    @property
    def seconds(self) -> float:
        """D of one step; measured when it is first asked for."""
        if self._seconds is None:
            return self._first()
        return self._seconds

    def hold(self, arrival: float, steps: int, stop: threading.Event) -> None:
        """Wait until the push of a model that came at `arrival` may leave, or until `stop`."""
        if self.seconds:
            stop.wait(self.left(arrival, steps))

    def left(self, arrival: float, steps: int) -> float:
        """Return the seconds until the push of a model that came at `arrival` may leave."""
        delay = self.seconds * steps
        took = self._clock() - arrival
        times = max(1, math.ceil(took / delay))
        self._note(late=times > 1)
        return max(0.0, delay * times - took)

    def _note(self, *, late: bool) -> None:
        """Change D for the next pushes: it grows after a late one, and goes back ever quicker."""
        self.late += late
        if late:
            self._quiet = 0
        else:
            self._quiet = self._quiet + 1
        if late:
            self._own_seconds = min(_LONGER * self.seconds, self._most())
            self._back = _BACK
        elif self._quiet == _QUIET:
            self._own_seconds = max(self._measured, self._back * self._own_seconds)
            self._quiet = 0
            self._back = self._back**2

    def _most(self) -> float:
        """Return what D grows to. Warn, once, when a push is late that had as much."""
        most = max(self._measured, min(_TIMES * self._measured, MOST_SECONDS))
        if self.seconds >= most and not self._warned:
            self._warned = True
            log.warning(
                "a push was not ready %.3g s after its model came, and the delay grows no more: it "
                "was measured as %.3g s; this machine is too slow now, and late pushes may tell "
                "how many rows were drawn",
                self.seconds,
                self._measured,
            )
        return most


def no_delay() -> ReleaseDelay:
    """Return no delay, for work that is not private."""
    return ReleaseDelay(lambda: 0.0)


def of_edge(role: Worker, turns: CpuTurns, folder: Path, run: str) -> ReleaseDelay:
    """Return the delay of an edge's pushes, none if they are not private.

    folder: its identity's, where pushes are made durable. Beside it lie those of the other edges of
    `run` on this machine.
    """
    if not role.releaser.plan.private:
        return no_delay()
    meeting = Meeting(folder.parent / "delays" / run, role.edge)
    return _agreed(meeting, role.edge, role.rehearsals, role.push_size, turns, folder, "push")


def of_looks(role: EdgeRole, turns: CpuTurns, folder: Path, run: str) -> ReleaseDelay:
    """Return the delay of an edge's answers to looks; arguments as of `of_edge`."""
    judge = role.judge
    if judge is None:
        return no_delay()
    meeting = Meeting(folder.parent / "delays" / f"{run}.looks", role.edge)
    return _agreed(meeting, role.edge, judge.rehearsals, judge.width, turns, folder, "judgement")


def _agreed(
    meeting: Meeting,
    edge: str,
    rehearsals: Callable[[], Iterable[Callable[[], None]]],
    size: int,
    turns: CpuTurns,
    folder: Path,
    what: str,
) -> ReleaseDelay:
    """Return the delay of messages of `size` numbers, whose work is that of `rehearsals`."""

    def measure() -> float:
        meeting.begin()
        work, seconds = slowest(rehearsals())
        trials = max(FEWEST, min(TRIALS, int(_MOST_SECONDS / seconds)))
        own_seconds = measured(work, turns, folder / "delay.trial", 4 * size, trials)
        delay = meeting.longest(own_seconds)
        log.info("%s: a %s leaves %.1f ms after its model came", edge, what, 1000 * delay)
        return delay

    return ReleaseDelay(measure, meeting.agreed)


def slowest(works: Iterable[Callable[[], None]]) -> tuple[Callable[[], None], float]:
    """Return the slowest of `works`, and its seconds: the quicker of two runs of each."""
    timed = [(min(_seconds(work) for _ in range(2)), work) for work in works]
    seconds, work = max(timed, key=lambda pair: pair[0])
    return work, seconds


def _seconds(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return max(time.monotonic() - began, 1e-6)


def measured(
    work: Callable[[], None], turns: CpuTurns, scratch: Path, size: int, trials: int = TRIALS
) -> float:
    """Return MARGIN times the median of `trials` of `work`.

    Each takes a turn, and writes as many durable bytes as a push has. scratch: a folder for them,
    made and deleted here.
    """
    for _ in range(WARM if trials == TRIALS else 0):
        work()
    scratch.mkdir(exist_ok=True)
    with closing(Ledger(scratch / "ledger.db", "trial")) as ledger:
        outbox = Outbox(ledger, "trial", folder=scratch)
        envelope = bytes(size)
        usual = statistics.median(_trial(work, turns, outbox, envelope) for _ in range(trials))
    shutil.rmtree(scratch)
    return MARGIN * usual


def _trial(work: Callable[[], None], turns: CpuTurns, outbox: Outbox, envelope: bytes) -> float:
    """Return the seconds of a turn with one step, and of a commit with the next charge."""
    seq = outbox.next_seq()
    began = time.monotonic()
    with turns.take():
        work()
    outbox.put(seq, envelope, ahead=_CHARGE)
    took = time.monotonic() - began
    outbox.done(seq)
    return took


class Meeting:
    """The folder in which the edges of one machine agree on the longest of their delays.

    An edge that has ended counts no more: each locks a file of its own while its process lives.
    """

    def __init__(self, folder: Path, edge: str) -> None:
        self._folder = folder
        self._edge = edge
        self._stated: float | None = None
        self._life: int | None = None

    def begin(self) -> None:
        """Announce that a delay will be stated."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._life = os.open(self._of(self._edge, _LIFE), os.O_RDWR | os.O_CREAT, 0o644)
        file_lock.take(self._life)  # as long as this process lives
        (self._folder / self._edge).unlink(missing_ok=True)
        self._of(self._edge, _MEASURING).touch()

    def longest(self, seconds: float) -> float:
        """State `seconds`; return the longest of all, once no edge is measuring.

        It waits for at most _TOGETHER_SECONDS.
        """
        self._say(seconds)
        self._of(self._edge, _MEASURING).unlink(missing_ok=True)
        pause = threading.Event()
        deadline = time.monotonic() + _TOGETHER_SECONDS
        while self._measuring() and time.monotonic() < deadline:
            pause.wait(0.01)
        return self.agreed(seconds)

    def agreed(self, seconds: float) -> float:
        """State `seconds`; return the longest that an edge at work has stated."""
        if seconds != self._stated:
            self._say(seconds)
        others = (path for path in self._folder.glob("edge-*") if not path.suffix)
        return max([seconds, *(self._longer(path, seconds) for path in others)])

    def _say(self, seconds: float) -> None:
        files.write(self._folder / self._edge, str(seconds).encode("ascii"), files.PUBLIC)
        self._stated = seconds

    def _longer(self, path: Path, seconds: float) -> float:
        """Return what an edge has stated in `path`, if that is more than `seconds`.

        Return `seconds` otherwise: also where the edge has ended, and for what is no number of
        seconds, or above MOST_SECONDS.
        """
        try:
            stated = float(regular_file.text(path, "ascii", _STATED))
        except (OSError, ValueError):  # the first where it begins anew
            return seconds
        if seconds < stated <= MOST_SECONDS and self._lives(path.name):
            return stated
        return seconds

    def _measuring(self) -> bool:
        return any(self._lives(path.stem) for path in self._folder.glob(f"*{_MEASURING}"))

    def _lives(self, edge: str) -> bool:
        try:
            return file_lock.is_held(self._of(edge, _LIFE))
        except OSError:
            return False

    def _of(self, edge: str, kind: str) -> Path:
        return self._folder / f"{edge}{kind}"
