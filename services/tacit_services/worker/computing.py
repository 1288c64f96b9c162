"""Computing that takes its turn at the processors, and longer for an experiment's straggler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tacit_services.worker.cpu_turns import CpuTurns

T = TypeVar("T")


class Computing:
    """One worker's."""

    def __init__(self, turns: CpuTurns, slowdown: float) -> None:
        """`slowdown`: so many times as long as the work itself."""
        self._turns, self._slowdown = turns, slowdown

    def do(self, work: Callable[[], T], stop: threading.Event) -> T:
        """What `work` gives. The turn is given back before a straggler waits, which `stop` ends."""
        with self._turns.take():
            began = time.monotonic()
            made = work()
            took = time.monotonic() - began
        if self._slowdown > 1:
            stop.wait((self._slowdown - 1) * took)
        return made
