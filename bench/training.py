"""Applied updates/s of a real `tacit run`, over what its processors compute of the same edge step and nothing else.

A shared machine is twice as fast in one minute as in the next, so the two take turns of a few seconds: all processes of
the run are stopped (SIGSTOP) while one bare edge step a core goes round, and the other way about.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
from tacit_client import Status

from services import local
from services.children import free_port
from services.commands import connect

TURN_SECONDS, TURNS = 3.0, 20


class Steps:
    """The bare steps, in processes `pids` that count in the files `counters`."""

    def __init__(self, pids: list[int], counters: list[Path]) -> None:
        self.pids, self._counters = pids, counters

    def count(self) -> int:
        """Steps so far."""
        return sum(int.from_bytes(counter.read_bytes(), "little") for counter in self._counters)


def tell(pids: Iterable[int], what: signal.Signals) -> None:
    """Send a signal to all; one that has ended in the meantime is no matter."""
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue


def measure(file: Path, out: Path, data: str | None, edges: int, steps: Steps) -> dict[str, Any]:
    """Train until there have been TURNS turns of each; the rates, and the median of the ratios of neighbours."""
    port, found = free_port(), list[tuple[float, float]]()

    def note(status: Status) -> None:
        known = status.privacy.edges
        if found or len(known) < edges or min(edge.pushes for edge in known.values()) <= 5:
            return
        with connect.client(f"http://127.0.0.1:{port}", connect.token(out / "state" / "token")) as client:
            found.extend(_alternate(lambda: client.status().applied, steps))
            client.halt("measured")

    root = Path(data) if data else None
    tell(steps.pids, signal.SIGSTOP)
    local.run(file, edges=None, out=out, serve=f"127.0.0.1:{port}", seed=None, data=root, as_json=False, observe=note)
    assert found
    training, compute = ([pair[k] for pair in found] for k in (0, 1))
    return {
        "training_per_s": statistics.mean(training), "compute_per_s": statistics.mean(compute),
        "training_over_compute": statistics.median(a / b for a, b in found),
        "training_over_compute_quartiles": statistics.quantiles((a / b for a, b in found), n=4)[::2],
    }  # fmt: skip


def _alternate(applied: Callable[[], int], steps: Steps) -> Iterable[tuple[float, float]]:
    """(updates/s, steps/s) of each pair of turns."""
    ours = [child.pid for child in psutil.Process().children(recursive=True) if child.pid not in steps.pids]
    for _ in range(TURNS):
        before, began = applied(), time.perf_counter()
        time.sleep(TURN_SECONDS)
        training = (applied() - before) / (time.perf_counter() - began)
        tell(ours, signal.SIGSTOP)
        before, began = steps.count(), time.perf_counter()
        tell(steps.pids, signal.SIGCONT)
        time.sleep(TURN_SECONDS)
        tell(steps.pids, signal.SIGSTOP)
        compute = (steps.count() - before) / (time.perf_counter() - began)
        tell(ours, signal.SIGCONT)
        print(f"    {training:.1f} updates/s, {compute:.1f} bare steps/s", flush=True)
        yield training, compute
