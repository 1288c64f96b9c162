"""Applied updates/s of a real `tacit run`, over what its processors compute of steps alone.

Three kinds of bare steps, with no broker, no journal and no ledger on disk. *Plain* ones: the mean
gradient of as many rows, in a process for each processor. *Private* ones, the edge's own, in the
same. And private ones in as many processes as the run has edges, which take turns. They show the
loss from sharing the processors alone.

A shared machine is twice as fast in one minute as in the next, so these take turns of a few
seconds. All processes of the run are stopped (SIGSTOP) while bare steps go round, and the other way
about. The run's own turns also tell what an update costs its edges and its aggregator, in processor
time. The delay that pushes are held back for is in all of it.
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
from tacit_services.children.processes import free_port
from tacit_services.testbed import local_run
from tacit_services.transport import rest_client

TURN_SECONDS = 3.0
TURNS = 20
# of each turn that do not count: what was stopped takes up to that long to be in step again
SETTLE_SECONDS = 0.5


class BareSteps:
    """Bare steps, in processes `pids` that count in the files `counters`."""

    def __init__(self, pids: list[int], counters: list[Path]) -> None:
        self.pids = pids
        self._counters = counters

    def count(self) -> int:
        """Return steps so far."""
        return sum(int.from_bytes(counter.read_bytes(), "little") for counter in self._counters)


def tell(pids: Iterable[int], what: signal.Signals) -> None:
    """Send a signal to all; one that has ended in the meantime is no matter."""
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue


class Processes:
    """The processes of a run: its edges' and its aggregator's processor time."""

    def __init__(self, others: Iterable[int]) -> None:
        """others: children of this process that are left out."""
        not_ours = set(others)
        children = psutil.Process().children(recursive=True)
        self._all = [child for child in children if child.pid not in not_ours]
        self.pids = [child.pid for child in self._all]

    def seconds(self) -> tuple[float, float]:
        """Return processor seconds of all edges, and of the aggregator, so far."""
        return self._of("tacit edge"), self._of("tacit aggregat")  # a name has 15 letters

    def _of(self, name: str) -> float:
        mine = (child for child in self._all if child.name().startswith(name))
        return sum(sum(child.cpu_times()[:2]) for child in mine)


def measure(
    file: Path, out: Path, data: str | None, edges: int, beside: dict[str, BareSteps]
) -> dict[str, Any]:
    """Train until there have been TURNS turns of each, and look at the rates.

    beside: bare steps by their names in the result. `training_per_s` and `NAME_per_s` are means.
    `training_over_NAME`, and its quartiles, are of the ratios of neighbours. `edge_cpu_ms` and
    `aggregator_cpu_ms` are of an update.
    """
    port = free_port()
    rates = list[tuple[float, ...]]()
    spent: list[tuple[float, ...]] = []

    def note(status: Status) -> None:
        slowest = status.slowest
        if rates or status.edges < edges or slowest is None or slowest.releases <= 5:
            return
        with rest_client.client(
            f"http://127.0.0.1:{port}", rest_client.token(out / "state" / "token")
        ) as client:
            rates.extend(_alternate(lambda: client.status().applied, beside, spent))
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
    assert rates
    turns = [(after, before) for before, after in zip(spent[::2], spent[1::2], strict=True)]
    updates, edge, aggregator = (
        sum(after[place] - before[place] for after, before in turns) for place in range(3)
    )
    costs = {"edge_cpu_ms": edge / updates, "aggregator_cpu_ms": aggregator / updates}
    return _rates(rates, list(beside)) | {name: 1000 * each for name, each in costs.items()}


def _rates(turns: list[tuple[float, ...]], names: list[str]) -> dict[str, Any]:
    means = [statistics.mean(rates) for rates in zip(*turns, strict=True)]
    rates: dict[str, Any] = {
        f"{name}_per_s": mean for name, mean in zip(["training", *names], means, strict=True)
    }
    for place, name in enumerate(names, 1):
        ratios = [turn[0] / turn[place] for turn in turns]
        rates[f"training_over_{name}"] = statistics.median(ratios)
        rates[f"training_over_{name}_quartiles"] = statistics.quantiles(ratios, n=4)[::2]
    return rates


def _alternate(
    applied: Callable[[], int], beside: dict[str, BareSteps], spent: list[tuple[float, ...]]
) -> Iterable[tuple[float, ...]]:
    """Yield (updates/s, steps/s of each of `beside`) of each round of turns.

    spent: where each turn begins and ends with the run's updates, and its edges' and its
    aggregator's processor seconds.
    """
    ours = Processes(pid for steps in beside.values() for pid in steps.pids)
    tell(ours.pids, signal.SIGSTOP)
    for _ in range(TURNS):
        rates = [_rate(ours.pids, lambda: _noted(applied(), ours, spent))]
        rates += [_rate(steps.pids, steps.count) for steps in beside.values()]
        print("    " + ", ".join(f"{rate:.1f}" for rate in rates), flush=True)
        yield tuple(rates)
    tell(ours.pids, signal.SIGCONT)


def _noted(applied: int, ours: Processes, spent: list[tuple[float, ...]]) -> int:
    """Return `applied`, which is noted with the processor times at the same moment."""
    spent.append((applied, *ours.seconds()))
    return applied


def _rate(pids: Sequence[int], count: Callable[[], int]) -> float:
    """Return the growth of `count` a second, in a turn of these processes.

    They are stopped before and after it.
    """
    tell(pids, signal.SIGCONT)
    time.sleep(SETTLE_SECONDS)
    before = count()
    began = time.perf_counter()
    time.sleep(TURN_SECONDS)
    after = count()
    took = time.perf_counter() - began
    tell(pids, signal.SIGSTOP)
    return (after - before) / took
