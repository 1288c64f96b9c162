"""What a private step costs over a plain one, for each network, mechanism and expected batch.

    python -m tacit_lab.bench.step [--out FILE] [--way alone|slots] [--networks cnn …] [--disk]
                                                   (four minutes on one core)

A *plain* step draws as many rows as the private one expects, and takes their mean gradient: no
padding, no privacy. The private step is all that an edge does for one push: draw, gather, clipped
sum, noise, a charge in its ledger, release. Both in one thread of one process, by the processor
time of that thread. The steps take turns, a round after another, so that whatever else the machine
does falls on all of them; the median of the rounds' ratios counts. The rows are random: no step
asks what stands in them.

Two ways: the drawn rows *alone*, where the network has kernels for it (else as the other), or a
fixed shape with random *slots*. The ledger is a file in memory (/dev/shm, if there is one), because
what a durable write takes is the disk's and the kernel's: a charge's own time, in memory and on
this disk, stands beside the ratios; with --disk it is in them.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from tacit_services.testbed.preload import KEEP_HEAP
from torch import Tensor

from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.datasets import Dataset
from tacit.models import Model, build
from tacit.models.vectors import mean_gradient
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.release import Mechanism, Plan, Releaser
from tacit.protocol.messages import GlobalModel, Push
from tacit_lab.bench.own_networks import OWN_NETWORKS
from tacit_lab.checkout import ROOT

# rows dealt to an edge, as MNIST's among ten
ROWS = 6_000
CLIP = 1.0
BATCHES = (48, 256)
MECHANISMS: tuple[Mechanism, ...] = ("discrete_gaussian", "gaussian")
NETWORKS = {  # as in experiments/ and in bench/cost.py
    "cnn": build("cnn", (1, 28, 28), 10, channels=(10, 20), hidden=(50,)),
    "resnet": build("resnet", (3, 32, 32), 10, width=8),
    "mobilenet": build("mobilenet", (3, 32, 32), 10, width=16),
    "lstm": build("lstm", (32,), 500, embedding=32, hidden=(32,)),
    "logistic": build("logistic", (1, 28, 28), 10),
}
_NAMES = [*NETWORKS, *OWN_NETWORKS]  # users' own at the first batch alone
SECONDS = 12.0  # of one network and batch
# rounds that do not count; that do: at least, at most
WARM = 2
LEAST = 5
MOST = 200
_ALONE = {"OMP_NUM_THREADS": "1"} | KEEP_HEAP  # as the edges of `tacit run`
_MEMORY = Path("/dev/shm")
Ratios = dict[str, dict[str, dict[str, float]]]
Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Way:
    """The way of the private step: rows alone or in slots, with a ledger on disk or not."""

    alone: bool = True
    disk: bool = False

    @property
    def folder(self) -> Path | None:
        """Where ledgers are; None: where temporary files are."""
        if self.disk or not _MEMORY.is_dir():
            return None
        return _MEMORY


def step_over_plain(
    networks: dict[str, Model],
    batches: Sequence[int] = BATCHES,
    rows: int = ROWS,
    seconds: float = SECONDS,
    way: Way = Way(),
) -> Ratios:
    """Return {network: {batch: {mechanism: time of a private step over that of a plain one}}}.

    seconds: how long one network and batch may take, warm-up apart; it has `LEAST` rounds in any
    case.
    """
    torch.set_num_threads(1)
    ratios: Ratios = {}
    for name, model in networks.items():
        x, y = model.random_batch(rows, torch.Generator().manual_seed(1))
        data = Dataset(x, y, model.classes, "random")
        ratios[name] = {str(batch): _ratios(model, data, batch, seconds, way) for batch in batches}
    return ratios


def _ratios(model: Model, data: Dataset, batch: int, seconds: float, way: Way) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=way.folder) as folder:
        params = model.init(1)
        edges = {
            name: _edge(model, data, batch, name, Path(folder) / f"{name}.db", way.alone)
            for name in MECHANISMS
        }
        steps = {name: _push(edge, params) for name, edge in edges.items()}
        times = _rounds({"plain": _plain(model, data, batch, params)} | steps, seconds)
        for edge in edges.values():
            edge.releaser.ledger.close()
    return {name: _median(times[name], times["plain"]) for name in MECHANISMS}


def _median(times: list[float], plain: list[float]) -> float:
    return round(
        statistics.median(private / other for private, other in zip(times, plain, strict=True)), 3
    )


def _plain(model: Model, data: Dataset, batch: int, params: Tensor) -> Step:
    def step() -> Tensor:
        index = torch.randint(len(data), (batch,))
        return mean_gradient(model, params, data.x[index], data.y[index])

    return step


def _edge(
    model: Model, data: Dataset, batch: int, mechanism: Mechanism, path: Path, alone: bool
) -> GradientEdge:
    """Return an edge with a real ledger and a secret key.

    It has as many slots as rows that are dealt in public give it.
    """
    rate = batch / len(data)
    plan = Plan(mechanism, rate, batch, 1.0, CLIP, CLIP, 1e6, 1e-5, rows_max=len(data))
    random = Random()
    rows = private_sum(data, model, plan, random, rows_alone=alone)
    return GradientEdge("edge-0", model, Releaser(plan, Ledger(path, data.name), random), rows)


def _push(edge: GradientEdge, params: Tensor) -> Step:
    def step() -> None:
        (outgoing,) = edge.on_message(GlobalModel(0, params, CLIP))
        assert isinstance(outgoing.message, Push), outgoing.message

    return step


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


def measured() -> Ratios:
    """Return `step_over_plain` of all networks, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        command = [sys.executable, "-m", "tacit_lab.bench.step", "--out", str(path)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        ratios: Ratios = json.loads(path.read_text(encoding="utf-8"))["step_over_plain"]
    return ratios


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
    print(f"    a charge: {charges['memory']} ms in memory, {charges['disk']} ms on this disk")
    out: Path = arguments.out
    out.parent.mkdir(parents=True, exist_ok=True)
    written = {"step_over_plain": ratios, "way": arguments.way, "charge_ms": charges}
    out.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
