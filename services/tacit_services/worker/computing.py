"""Computing that takes its turn at the processors, and longer for an experiment's straggler."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tacit_services.worker.cpu_turns import CpuTurns


class Computing:
    """The computing of one worker: in turn with others, and slowed down for experiments."""

    def __init__(self, turns: CpuTurns, slowdown: float) -> None:
        """`slowdown`: so many times as long as the work itself."""
        self._turns = turns
        self._slowdown = slowdown

    @contextmanager
    def turn(self, stop: threading.Event) -> Iterator[None]:
        """Yield a turn at computing: what is done in the `with` block counts as the work.

        The turn is given back before a straggler waits, which `stop` ends.
        """
        with self._turns.take():
            began = time.monotonic()
            yield
            took = time.monotonic() - began
        if self._slowdown > 1:
            stop.wait((self._slowdown - 1) * took)
