"""The aggregator of the newest run that is over, which goes on answering REST at its host."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from tacit_services.federation.run_records import RunRecord

log = logging.getLogger("tacit.federation")
PAUSE = 5.0  # seconds before one that died is started again


class AnsweringProcess(Protocol):
    """The process of an aggregator whose run is over."""

    def start(self) -> None:
        """Start it."""

    def code(self) -> int | None:
        """Return its exit code; None while it runs."""

    def stop(self) -> None:
        """Ask it to end, and wait."""


class RunRights(Protocol):
    """The broker's rules, as far as a run that is over has any."""

    def open_run(self, run: str) -> None:
        """Let the aggregator of `run` speak for it."""

    def close_run(self, run: str) -> None:
        """Let nobody say or hear anything of `run`."""


class Lingering:
    """At most one aggregator of a run that is over. Its members may say nothing in it any more."""

    def __init__(
        self,
        rules: RunRights,
        make: Callable[[RunRecord], AnsweringProcess],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """make: makes the process of a run's aggregator, not started."""
        self._rules = rules
        self._make = make
        self._clock = clock
        self._run: str | None = None
        self._process: AnsweringProcess | None = None
        self._died_at: float | None = None

    @property
    def run(self) -> str | None:
        """The run whose aggregator lingers; None: there is none."""
        return self._run

    def take(self, run: str, process: AnsweringProcess) -> None:
        """Let the running `process` of a run linger; the one before ends."""
        self.end()
        self._run = run
        self._process = process

    def resume(self, record: RunRecord) -> None:
        """Let the aggregator of a run that was over before linger. Raises TacitError."""
        process = self._make(record)
        self._rules.open_run(record.name)
        process.start()
        self.take(record.name, process)

    def look(self) -> None:
        """Start it again where it has died a while ago."""
        if self._process is None or self._process.code() is None:
            return
        now = self._clock()
        if self._died_at is None:
            log.warning("the aggregator of run %s, which is over, died", self._run)
            self._died_at = now
        elif now - self._died_at >= PAUSE:
            self._died_at = None
            self._process.start()

    def end(self) -> None:
        """End it, for good. Idempotent."""
        self.close()
        if self._run is not None:
            self._rules.close_run(self._run)
        self._run = None

    def close(self) -> None:
        """Stop its process, as its host ends. Idempotent."""
        if self._process is not None:
            self._process.stop()
        self._process = None
        self._died_at = None
