"""Applied updates/s of a real `tacit run`, over what its processors compute of the same edge step
and nothing else.

A shared machine is twice as fast in one minute as in the next, so these take turns of a few
seconds: all processes of the run are stopped (SIGSTOP) while one bare edge step a core goes round,
and the other way about. A third turn is of bare steps in as many processes as the run has edges:
what is lost because they share the cores, whatever they send.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil
from tacit_client import Status
from tacit_services.testbed import local_run
from tacit_services.testbed.processes import free_port
from tacit_services.transport import rest_client

TURN_SECONDS, TURNS = 3.0, 20
# of each turn that do not count: what was stopped takes up to that long to be in step again
SETTLE_SECONDS = 0.5


class Steps:
    """Bare steps, in processes `pids` that count in the files `counters`."""

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


def measure(
    file: Path, out: Path, data: str | None, edges: int, bare: Steps, apart: Steps
) -> dict[str, Any]:
    """Train until there have been TURNS turns of each; the rates, and the medians of the ratios of
    neighbours.

    `bare`: one process a core; `apart`: as many processes as there are edges, that take turns at
    computing as these do.
    """
    port, found = free_port(), list[tuple[float, float, float]]()

    def note(status: Status) -> None:
        slowest = status.slowest
        if found or status.edges < edges or slowest is None or slowest.releases <= 5:
            return
        with rest_client.client(
            f"http://127.0.0.1:{port}", rest_client.token(out / "state" / "token")
        ) as client:
            found.extend(_alternate(lambda: client.status().applied, bare, apart))
            client.halt("measured")

    root = Path(data) if data else None
    local_run.run(
        file,
        edges=None,
        out=out,
        serve=f"127.0.0.1:{port}",
        seed=None,
        data=root,
        as_json=False,
        observe=note,
    )
    assert found
    names = ("training_per_s", "compute_per_s", "compute_in_turns_per_s")
    rates = {
        name: statistics.mean(rates)
        for name, rates in zip(names, zip(*found, strict=True), strict=True)
    }
    return rates | {
        "training_over_compute": statistics.median(ours / bare for ours, bare, _ in found),
        "training_over_compute_quartiles": statistics.quantiles(
            (ours / bare for ours, bare, _ in found), n=4
        )[::2],
        "training_over_compute_in_turns": statistics.median(
            ours / apart for ours, _, apart in found
        ),
    }


def _alternate(
    applied: Callable[[], int], bare: Steps, apart: Steps
) -> Iterable[tuple[float, float, float]]:
    """(updates/s, steps/s, steps/s of processes in turns) of each round of turns."""
    others = {*bare.pids, *apart.pids}
    ours = [
        child.pid for child in psutil.Process().children(recursive=True) if child.pid not in others
    ]
    tell(ours, signal.SIGSTOP)
    for _ in range(TURNS):
        found = _rate(ours, applied), _rate(bare.pids, bare.count), _rate(apart.pids, apart.count)
        print(
            "    {:.1f} updates/s, {:.1f} bare steps/s, {:.1f} of processes in turns".format(
                *found
            ),
            flush=True,
        )
        yield found
    tell(ours, signal.SIGCONT)


def _rate(pids: Sequence[int], count: Callable[[], int]) -> float:
    """What `count` grows by in a second of a turn of these processes, which are stopped before
    and after it.
    """
    tell(pids, signal.SIGCONT)
    time.sleep(SETTLE_SECONDS)
    before, began = count(), time.perf_counter()
    time.sleep(TURN_SECONDS)
    after, took = count(), time.perf_counter() - began
    tell(pids, signal.SIGSTOP)
    return (after - before) / took
