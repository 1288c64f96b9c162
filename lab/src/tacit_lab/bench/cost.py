"""What privacy costs in time: one edge step, taken apart, at expected batch 48 and 256, as ratios
in one run.

The steps take turns, a round after another, so that other work of the machine falls on all of them.
The median round counts. CPU time of one thread, the CNN of 21,840 parameters, 12,000 rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.datasets import Dataset
from tacit.models import build
from tacit.models.vectors import example_gradients, mean_gradient
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import padded_size
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.private_sum.clipping import clipped_sum
from tacit.privacy.private_sum.sampling import poisson
from tacit.privacy.release import PRIVATE, Mechanism, Plan, Releaser
from tacit.protocol.messages import GlobalModel

ROWS = 12_000
CLIP = 1.0
BATCHES = (48, 256)
MODEL = build("cnn", (1, 28, 28), 10, channels=(10, 20), hidden=(50,))
TimedStep = Callable[[], object]


def costs(rounds: int = 25) -> dict[str, float]:
    """Return {`cost_{batch}_{step}`: CPU time over that of a plain step at the same batch}.

    Beside them are the mechanisms' own ratios.

    `plain`: forward, backward, mean gradient. `clip`: a gradient for each example, clipped, added.
    `padding`: the same on a Poisson batch padded to B_max. Then the whole edge step with each
    mechanism (ledger in memory), and `cost_{batch}_{mechanism}_over_clip`: that step over
    `padding`, the same rows without noise.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    data = Dataset(
        torch.rand(ROWS, 1, 28, 28, generator=generator),
        torch.randint(10, (ROWS,), generator=generator),
        10,
        "random",
    )
    ratios: dict[str, float] = {}
    for batch in BATCHES:
        medians = _medians(_steps(data, batch), rounds)
        ratios |= {
            f"cost_{batch}_{name}": value / medians["plain"] for name, value in medians.items()
        }
        ratios |= {
            f"cost_{batch}_{name}_over_clip": medians[name] / medians["padding"] for name in PRIVATE
        }
    return ratios


def _steps(data: Dataset, batch: int) -> dict[str, TimedStep]:
    params = MODEL.init(1)
    rate = batch / ROWS
    random = Random()
    size = padded_size(ROWS, rate)
    some = torch.randperm(ROWS)[:batch]
    everyone = torch.ones(batch, dtype=torch.bool)
    x, y = (
        torch.cat((rows, torch.zeros_like(rows[:1]))) for rows in (data.x, data.y)
    )  # the public row comes last

    def clip(index: Tensor, mask: Tensor) -> object:
        return clipped_sum(example_gradients(MODEL, params, x[index], y[index]), CLIP, mask)

    def padded() -> object:
        drawn = poisson(ROWS, rate, size, random)
        return clip(drawn.index, drawn.mask)

    steps: dict[str, TimedStep] = {
        "plain": lambda: mean_gradient(MODEL, params, data.x[some], data.y[some]),
        "clip": lambda: clip(some, everyone),
        "padding": padded,
    }
    return steps | {name: _edge_step(data, name, batch, params) for name in PRIVATE}


def _edge_step(data: Dataset, mechanism: Mechanism, batch: int, params: Tensor) -> TimedStep:
    plan = Plan(mechanism, batch / ROWS, batch, 1.0, 0.1, 10.0, 1e6, 1e-5)
    random = Random()
    rows = private_sum(data, MODEL, plan, random)
    edge = GradientEdge("edge-0", MODEL, Releaser(plan, Ledger(":memory:", "bench"), random), rows)
    return lambda: edge.on_message(GlobalModel(0, params, CLIP))


def _medians(steps: dict[str, TimedStep], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 3):
        for name, step in steps.items():
            began = time.process_time()
            step()
            if number >= 3:  # the first rounds warm up
                times[name].append(time.process_time() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def show(ratios: dict[str, float]) -> None:
    """Print the table."""
    names = ("plain", "clip", "padding", *PRIVATE)
    print(f"(d) one edge step        {'':>10}" + "".join(f"{name:>19}" for name in names))
    for batch in BATCHES:
        print(
            f"    batch {batch:<5}       × plain    "
            + "".join(f"{ratios[f'cost_{batch}_{n}']:19.2f}" for n in names)
        )
        overheads = "".join(f"{ratios[f'cost_{batch}_{n}_over_clip']:19.2f}" for n in PRIVATE)
        print(f"                      × padding  {'':57}{overheads}")


if __name__ == "__main__":
    show(costs())
