"""What a system of processes does in a window of time: updates/s, and processor time an update."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

# until so many updates are applied, which do not count
START_SECONDS = 180.0
WARM = 25


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of applied updates. cpu_ms: processor milliseconds of all processes, an update."""

    per_s: float
    cpu_ms: float


class System:
    """Processes that were started together, and all that they start."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, command: list[str], folder: Path, log: str, environment: dict[str, str]
    ) -> Path:
        """Start `command` in `folder`; returns the file that it writes to."""
        path = folder / log
        with path.open("ab") as file:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._started.append(process)
        return path

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait for it. Raises RuntimeError where a process ends before, or it takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while not reached():
            if any(process.poll() is not None for process in self._started):
                raise RuntimeError(f"{what}: a process has ended")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not within {START_SECONDS:.0f} s")
            time.sleep(0.05)

    def rate(self, applied: Callable[[], int], seconds: float) -> Rate:
        """Return the rate from the WARM-th update on, for so many seconds."""
        self.until(lambda: applied() >= WARM, f"{WARM} updates")
        before = applied()
        spent = self._cpu_seconds()
        began = time.perf_counter()
        time.sleep(seconds)
        updates = applied() - before
        spent = self._cpu_seconds() - spent
        took = time.perf_counter() - began
        return Rate(updates / took, 1000 * spent / max(1, updates))

    def stop(self) -> None:
        """End every process, the latest first."""
        everybody = self._everybody()
        for process in reversed(self._started):
            process.terminate()
        psutil.wait_procs(everybody, timeout=10)
        for each in everybody:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        for process in self._started:
            process.wait()

    def _everybody(self) -> list[psutil.Process]:
        processes = []
        for process in self._started:
            with contextlib.suppress(psutil.NoSuchProcess):
                root = psutil.Process(process.pid)
                processes += [root, *root.children(recursive=True)]
        return processes

    def _cpu_seconds(self) -> float:
        total = 0.0
        for each in self._everybody():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                total += times.user + times.system
        return total


@contextmanager
def system() -> Iterator[System]:
    """Yield a system, which is ended with the block."""
    running = System()
    try:
        yield running
    finally:
        running.stop()


def lines(path: Path, beginning: bytes) -> int:
    """Return how many lines of a file begin so."""
    return sum(line.startswith(beginning) for line in path.read_bytes().splitlines())
