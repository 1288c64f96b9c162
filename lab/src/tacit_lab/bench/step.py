"""What a private step costs over a plain one, for each network, mechanism and expected batch.

    python -m tacit_lab.bench.step [--out FILE] [--way alone|slots] [--networks cnn …] [--disk]
                                                   (eight minutes on one core)

A *plain* step draws as many rows as the private one expects, and takes their mean gradient: no
padding, no privacy. The private step is all that an edge does for one push: draw, gather, clipped
sum, noise, a charge in its ledger, release. Both in one thread of one process, by the processor
time of that thread. The steps take turns, a round after another, so that other work of the machine
falls on all of them. The median of the rounds' ratios counts. The rows are random: no step asks
what stands in them.

Two ways: the drawn rows *alone*, where the network has kernels for it (else as the other), or a
fixed shape with random *slots*. The ledger is a file in memory (/dev/shm, if there is one), because
the time of a durable write is the disk's and the kernel's. A charge's own time, in memory and on
this disk, stands beside the ratios. With --disk it is in them. The memory of a step and the pushes
of an hour, at the first batch, are measured in processes of their own (`step_memory`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tacit_services.children.preload import KEEP_HEAP

from tacit.datasets import Dataset
from tacit.models import Model
from tacit.privacy.ledger import Ledger
from tacit_lab.bench.one_step import (
    BATCHES,
    MECHANISMS,
    NETWORKS,
    ROWS,
    Step,
    Way,
    bench_edge,
    plain_step,
    push_step,
    rows_of,
)
from tacit_lab.bench.own_networks import OWN_NETWORKS
from tacit_lab.bench.step_memory import memory_and_pushes
from tacit_lab.checkout import ROOT

_NAMES = [*NETWORKS, *OWN_NETWORKS]  # users' own at the first batch alone
SECONDS = 12.0  # of one network and batch
# rounds that do not count; that do: at least, at most
WARM = 2
LEAST = 5
MOST = 200
_ALONE = {"OMP_NUM_THREADS": "1"} | KEEP_HEAP  # as the edges of `tacit run`
_USUAL = Way()
Ratios = dict[str, dict[str, dict[str, float]]]


def step_over_plain(
    networks: dict[str, Model],
    batches: Sequence[int] = BATCHES,
    rows: int = ROWS,
    seconds: float = SECONDS,
    way: Way = _USUAL,
) -> Ratios:
    """Return {network: {batch: {mechanism: time of a private step over that of a plain one}}}.

    seconds: how long one network and batch may take, warm-up apart; it has `LEAST` rounds in any
    case.
    """
    torch.set_num_threads(1)
    ratios: Ratios = {}
    for name, model in networks.items():
        data = rows_of(model, rows)
        ratios[name] = {str(batch): _ratios(model, data, batch, seconds, way) for batch in batches}
    return ratios


def _ratios(model: Model, data: Dataset, batch: int, seconds: float, way: Way) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=way.folder) as folder:
        params = model.init(1)
        edges = {
            name: bench_edge(model, data, batch, name, Path(folder) / f"{name}.db", alone=way.alone)
            for name in MECHANISMS
        }
        steps = {name: push_step(edge, params) for name, edge in edges.items()}
        times = _rounds({"plain": plain_step(model, data, batch, params)} | steps, seconds)
        for edge in edges.values():
            edge.releaser.ledger.close()
    return {name: _median(times[name], times["plain"]) for name in MECHANISMS}


def _median(times: list[float], plain: list[float]) -> float:
    return round(
        statistics.median(private / other for private, other in zip(times, plain, strict=True)), 3
    )


def _rounds(steps: dict[str, Step], seconds: float, most: int = MOST) -> dict[str, list[float]]:
    """Return processor seconds of every step in every round."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    number = 0
    began = 0.0
    while number < WARM + LEAST or (number < WARM + most and time.monotonic() - began < seconds):
        if number == WARM:
            times = {name: [] for name in steps}
            began = time.monotonic()
        for name, step in steps.items():
            before = time.thread_time()
            step()
            times[name].append(time.thread_time() - before)
        number += 1
    return times


def charge_ms(way: Way, count: int = 100) -> float:
    """Return processor milliseconds of one charge, the median of `count`."""
    with tempfile.TemporaryDirectory(dir=way.folder) as folder:
        ledger = Ledger(Path(folder) / "ledger.db", "random")
        charge = partial(ledger.charge, 0.1, 1.0, "gaussian", secret=True)
        times = _rounds({"charge": charge}, seconds=60.0, most=count)["charge"]
        ledger.close()
    return round(1e3 * statistics.median(times), 3)


def measured() -> dict[str, Any]:
    """Return `step_over_plain` and `step_memory` of all networks, in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        command = [sys.executable, "-m", "tacit_lab.bench.step", "--out", str(path)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        written = json.loads(path.read_text(encoding="utf-8"))
    return {key: written[key] for key in ("step_over_plain", "step_memory")}


def show(ratios: Ratios) -> None:
    """Print the table."""
    print(
        f"{'(e) push / plain step':<24}"
        + "".join(f"{f'{name}, {b}':>24}" for b in BATCHES for name in MECHANISMS)
    )
    for network, batches in ratios.items():
        print(
            f"    {network:<20}"
            + "".join(f"{batches[b][name]:24.2f}" for b in batches for name in MECHANISMS)
        )


def show_memory(results: dict[str, dict[str, float]]) -> None:
    """Print the table of memory and pushes."""
    print(f"{'    at 48, one thread':<24}{'plain':>12}{'private':>12}{'more':>20}{'delay':>14}")
    for network, row in results.items():
        more = f"{row['gradients_more']:.1f} gradients"
        print(
            f"    {network:<20}{row['plain_mb']:>9.1f} MB{row['private_mb']:>9.1f} MB{more:>20}"
            f"{row['delay_ms']:>11.1f} ms{row['pushes_an_hour']:>10.0f} pushes an hour"
        )


def main() -> None:
    """Measure, print and write."""
    if not _ALONE.items() <= os.environ.items():  # libraries read them once, when they are loaded
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tacit_lab.bench.step", *sys.argv[1:]],
            os.environ | _ALONE,
        )
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.bench.step")
    parser.add_argument("--out", type=Path, default=Path("out/step.json"))
    parser.add_argument("--networks", nargs="*", default=_NAMES, choices=_NAMES)
    parser.add_argument("--way", choices=("alone", "slots"), default="alone")
    parser.add_argument("--disk", action="store_true", help="with ledgers on disk")
    arguments = parser.parse_args()
    way = Way(arguments.way == "alone", arguments.disk)
    networks = {name: NETWORKS[name] for name in arguments.networks if name in NETWORKS}
    ratios = step_over_plain(networks, way=way)
    own = {name: OWN_NETWORKS[name]() for name in arguments.networks if name in OWN_NETWORKS}
    ratios |= step_over_plain(own, BATCHES[:1], way=way)
    charges = {"memory": charge_ms(Way()), "disk": charge_ms(Way(disk=True))}
    show(ratios)
    memory = memory_and_pushes(arguments.networks)
    show_memory(memory)
    print(f"    a charge: {charges['memory']} ms in memory, {charges['disk']} ms on this disk")
    out: Path = arguments.out
    out.parent.mkdir(parents=True, exist_ok=True)
    written = {
        "step_over_plain": ratios,
        "step_memory": memory,
        "way": arguments.way,
        "charge_ms": charges,
    }
    out.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
