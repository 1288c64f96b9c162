"""The supervisor of a federation's runs: when each begins, and a process for each that trains.

A run begins when enough members have consented and a place is free. Its aggregator is a child of
the host's. One that dies is started again and goes on from its store, so a run that fails never
stops another. All that must outlast the host is in the records and in the stores of the runs: a
host that is started again goes on with what is there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tacit.errors import ConfigError, ServiceError, TacitError
from tacit_services.aggregator.reporting.end_reasons import NO_BETTER
from tacit_services.federation.lingering import Lingering
from tacit_services.federation.run_records import RunRecord, RunRecords

log = logging.getLogger("tacit.federation")
LEFT = "every member has left"  # why such a run is stopped
TICK = 0.25  # seconds between two looks at all runs
ASK = 1.0  # seconds between two questions to an aggregator
QUIET = 300.0  # seconds without a death after which an aggregator's deaths are forgotten
MOST_DEATHS = 20
PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before the next start, by deaths in a row


class Rules(Protocol):
    """The broker's rules: who may say and hear what, while it runs."""

    def open(self, run: str, member: str) -> None:
        """Let `member` take part in `run`."""

    def close(self, run: str, member: str) -> None:
        """Let `member` take part in `run` no more."""

    def open_run(self, run: str) -> None:
        """Let the aggregator of `run` speak for it."""

    def close_run(self, run: str) -> None:
        """Let nobody say or hear anything of `run`."""

    def disconnect(self, member: str) -> None:
        """Let `member`, which was revoked, say and hear nothing more."""

    def stop(self) -> None:
        """End what changes the rules."""


class Aggregator(Protocol):
    """The process of one run's aggregator."""

    def start(self) -> None:
        """Start it."""

    def code(self) -> int | None:
        """Return its exit code; None while it runs."""

    def stop(self) -> None:
        """Ask it to end, and wait; what it must keep is in its store."""

    def complaint(self) -> str:
        """Return the last line of its log."""


class Asking(Protocol):
    """What the supervisor asks a running aggregator, over its socket."""

    def status(self, run: str) -> dict[str, object] | None:
        """Return `/v1/status`; None: it does not answer now."""

    def begin(self, run: str) -> None:
        """Let the run begin with the members that are there."""

    def halt(self, run: str, reason: str) -> bool:
        """End the run; False: it does not answer now."""


class Supervised:
    """One run that trains: its process, and how often that has died."""

    def __init__(self, process: Aggregator) -> None:
        self.process = process
        self.deaths = 0
        self.died_at = 0.0
        self.asked_at = 0.0
        self.left_at: float | None = None  # since when nobody takes part; None: somebody does
        self.start_at: float | None = None  # when it is started again; None: it runs


class Supervisor:
    """The loop over all runs, in a thread of its own between `start` and `close`."""

    def __init__(
        self,
        records: RunRecords,
        rules: Rules,
        asking: Asking,
        make: Callable[[RunRecord], Aggregator],
        parallel: int,
        members: Callable[[], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
        lingering: Lingering | None = None,
    ) -> None:
        """make: makes the process of a run's aggregator, not started. parallel: runs at a time.

        members: the ids of all who may still answer, so of none that was revoked. lingering: for
        the aggregator of a run that is over; None: it ends by itself.
        """
        self._records = records
        self._rules = rules
        self._asking = asking
        self._make = make
        self._parallel = parallel
        self._members = members
        self._clock = clock
        self._lingering = lingering
        self._running: dict[str, Supervised] = {}
        self._waiting: dict[str, float] = {}  # since when a run has a member's consent
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="supervisor", daemon=True)

    def start(self) -> None:
        """Go on with the runs that were training, and look after all from now on."""
        for record in self._records.all():
            if record.state == "training":
                self._apart_from_others(self._go_on, record)
        self._linger_on()
        self._thread.start()

    def _linger_on(self) -> None:
        """Let the newest run that is over answer again, where none trains."""
        if self._lingering is None or self._running:
            return
        records = self._records
        over = [each for each in records.all() if each.over and records.has_results(each.name)]
        if over:
            self._apart_from_others(self._lingering.resume, over[-1])

    def newest(self) -> str | None:
        """Return the newest run whose aggregator is there; None: none is."""
        running = [each.name for each in self._records.all() if each.name in self._running]
        if running:
            return running[-1]
        return None if self._lingering is None else self._lingering.run

    def close(self) -> None:
        """Stop the aggregators, which go on at the next start. Idempotent."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        for supervised in self._running.values():
            supervised.process.stop()
        self._running.clear()
        if self._lingering is not None:
            self._lingering.close()

    def halt(self, run: str, why: str) -> None:
        """End a run: at once where it does not train yet, else with its results."""
        with self._lock:
            record = self._records.get(run)
            if record is None or record.over:
                return
            if record.state == "training":
                self._records.change(run, stopping=why)
            else:
                self._records.change(run, state="stopped", why=why)

    def consented(self, run: str, member: str) -> None:
        """Let a member that has consented take part, if the run trains already."""
        record = self._records.get(run)
        if record is not None and record.state == "training":
            self._rules.open(run, member)

    def withdrawn(self, run: str, member: str) -> None:
        """Let a member say nothing more in a run."""
        self._rules.close(run, member)

    def look(self) -> None:
        """Look at every run once: begin, restart, or end what is due."""
        with self._lock:
            for record in self._records.all():
                if record.state in ("offered", "waiting"):
                    self._apart_from_others(self._look_at_waiting, record)
                elif record.state == "training":
                    self._apart_from_others(self._look_at_training, record)
            if self._lingering is not None:
                self._lingering.look()

    def _loop(self) -> None:
        while not self._end.wait(TICK):
            self.look()

    def _apart_from_others(self, step: Callable[[RunRecord], None], record: RunRecord) -> None:
        """Take a step for a run; what is in its way is tried again, and in the way of no other."""
        try:
            step(record)
        except (TacitError, OSError) as error:
            log.warning("run %s: %s; trying again", record.name, error)

    def _look_at_waiting(self, record: RunRecord) -> None:
        consenting = len(record.consenting)
        if not consenting:
            return
        since = self._waiting.setdefault(record.name, self._clock())
        if not record.may_begin(self._clock() - since):
            why = f"{consenting} of {record.needed} members have consented"
            self._records.change(record.name, state="waiting", why=why)
        elif len(self._running) >= self._parallel:
            why = f"{len(self._running)} runs train already, and parallel={self._parallel}"
            self._records.change(record.name, state="waiting", why=why)
        else:
            self._open_rules(record)
            self._waiting.pop(record.name, None)
            before = set(record.consenting)
            record = self._records.change(record.name, state="training", why="")
            self._follow(record, before)
            log.info("run %s begins with %s", record.name, ", ".join(record.consenting))
            self._spawn(record)

    def _open_rules(self, record: RunRecord) -> None:
        self._rules.open_run(record.name)
        for member in record.consenting:
            self._rules.open(record.name, member)

    def _follow(self, record: RunRecord, before: set[str]) -> None:
        """Let those in, and out, who have answered while the rules were opened for `before`."""
        now = set(record.consenting)
        for member in now - before:
            self._rules.open(record.name, member)
        for member in before - now:
            self._rules.close(record.name, member)

    def _go_on(self, record: RunRecord) -> None:
        self._open_rules(record)
        self._spawn(record)

    def _spawn(self, record: RunRecord) -> None:
        try:
            supervised = Supervised(self._make(record))
        except ConfigError as error:  # another try would not help
            self._failed(record, str(error))
            return
        if self._lingering is not None:
            self._lingering.end()
        supervised.process.start()
        self._running[record.name] = supervised

    def _look_at_training(self, record: RunRecord) -> None:
        supervised = self._running.get(record.name)
        if supervised is None:  # something was in the way of its process
            self._go_on(record)
            return
        if supervised.start_at is not None:
            if self._clock() >= supervised.start_at:
                supervised.start_at = None
                supervised.process.start()
            return
        code = supervised.process.code()
        if code is None:
            self._stop_if_left(record, supervised)
            self._ask(record)
        elif code == 0 and self._records.has_results(record.name):
            self._ended(record)
        else:
            self._died(record, supervised, code)

    def _stop_if_left(self, record: RunRecord, supervised: Supervised) -> None:
        """Stop a run in which nobody takes part any more, `edges.grace` after the last has left.

        Somebody who has not answered yet may still take part: then the run waits.
        """
        if record.consenting or record.unanswered(self._members()):
            supervised.left_at = None
            return
        if supervised.left_at is None:
            supervised.left_at = self._clock()
        if not record.stopping and self._clock() - supervised.left_at >= record.grace:
            self._records.change(record.name, stopping=LEFT)

    def _ask(self, record: RunRecord) -> None:
        if record.stopping:
            self._asking.halt(record.name, record.stopping)
        supervised = self._running[record.name]
        if self._clock() - supervised.asked_at < ASK:
            return
        supervised.asked_at = self._clock()
        status = self._asking.status(record.name)
        if status is None:
            return
        online = _count(status.get("edges_online"))
        self._records.heard(record.name, _count(status.get("applied")), online)
        if self._lingering is not None and self._is_over(record, status):
            self._ended(record)
            return
        few = len(record.consenting) < record.needed
        if few and status.get("state") == "waiting":
            self._asking.begin(record.name)  # the host has waited for members already

    def _is_over(self, record: RunRecord, status: dict[str, object]) -> bool:
        """Return whether a run is over whose aggregator goes on answering."""
        over = status.get("state") in ("finished", "halted")
        return over and self._records.has_results(record.name)

    def _ended(self, record: RunRecord) -> None:
        process = self._running.pop(record.name).process
        result = self._records.result(record.name)
        applied = _count(result.get("applied")) or record.applied
        why = record.stopping or _unreached(result)
        state = "stopped" if why else "ended"
        self._records.change(record.name, state=state, why=why, applied=applied)
        if self._lingering is None:
            self._rules.close_run(record.name)
        else:
            self._lingering.take(record.name, process)
            for member in record.consenting:
                self._rules.close(record.name, member)
        log.info("run %s: %s", record.name, state)

    def _died(self, record: RunRecord, supervised: Supervised, code: int) -> None:
        now = self._clock()
        if now - supervised.died_at > QUIET:
            supervised.deaths = 0
        supervised.deaths += 1
        supervised.died_at = now
        reasoned = 0 < code < 128 and code != ServiceError.exit_code
        if reasoned or supervised.deaths > MOST_DEATHS:
            del self._running[record.name]
            self._failed(record, supervised.process.complaint())
            return
        pause = PAUSES[min(supervised.deaths, len(PAUSES)) - 1]
        supervised.start_at = now + pause
        log.warning("the aggregator of run %s died (%d); starting it again", record.name, code)

    def _failed(self, record: RunRecord, why: str) -> None:
        self._records.change(record.name, state="failed", why=why)
        self._rules.close_run(record.name)
        log.warning("run %s failed: %s", record.name, why)


def _unreached(result: Mapping[str, object]) -> str:
    """Return why a run ended before its updates; "": it has them, or `run.stop` has ended it."""
    reason = str(result.get("reason") or "")
    if result.get("state") != "halted" or reason.startswith(NO_BETTER):
        return ""
    return reason


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
