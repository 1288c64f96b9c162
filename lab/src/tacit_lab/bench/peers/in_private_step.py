"""One private step of another library over a plain one, in that library's venv: torch is there.

    python in_private_step.py opacus|fastdp NETWORK BATCH SECONDS PLACE

PLACE: the folder of `plain_networks.py`. Both steps take as many rows, drawn with replacement, in
one thread. They take turns; the median of the rounds' ratios of processor time is printed, as JSON.
The library's noise is torch's own generator's: its secure mode would cost more.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 6_000
CLASSES = 10
WARM, LEAST = 2, 5
Turn = Callable[[], object]


def plain(module: nn.Module, rows: Callable[[], tuple[Tensor, Tensor]]) -> Turn:
    """Return a step that computes a mean gradient."""
    criterion = nn.CrossEntropyLoss()

    def step() -> None:
        module.zero_grad()
        x, y = rows()
        criterion(module(x), y).backward()

    return step


def opacus_step(module: nn.Module, batch: int, rows: Callable[[], tuple[Tensor, Tensor]]) -> Turn:
    """Return a step of Opacus with ghost clipping."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(*rows()), batch_size=batch)
    made: tuple[Any, ...] = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=1e-3),
        data_loader=loader,
        criterion=nn.CrossEntropyLoss(),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
        poisson_sampling=False,
    )
    private, optimizer, criterion, _ = made

    def step() -> None:
        optimizer.zero_grad()
        x, y = rows()
        criterion(private(x), y).backward()
        optimizer.step()

    return step


def fastdp_step(module: nn.Module, batch: int, rows: Callable[[], tuple[Tensor, Tensor]]) -> Turn:
    """Return a step of FastDP with its own choice of clipping for each layer."""
    from fastDP import PrivacyEngine  # type: ignore[import-not-found]

    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    engine = PrivacyEngine(
        module,
        batch_size=batch,
        sample_size=ROWS,
        epochs=1,
        noise_multiplier=1.0,
        clipping_fn="Abadi",
        clipping_mode="MixOpt",
    )
    engine.attach(optimizer)
    criterion = nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        x, y = rows()
        criterion(module(x), y).backward()
        optimizer.step()

    return step


STEPS = {"opacus": opacus_step, "fastdp": fastdp_step}


def ratio(first: Turn, private: Turn, seconds: float) -> float:
    """Return the median of the rounds' ratios of processor time."""
    ratios: list[float] = []
    began = time.monotonic()
    while len(ratios) < WARM + LEAST or time.monotonic() - began < seconds:
        times = []
        for step in (first, private):
            before = time.thread_time()
            step()
            times.append(time.thread_time() - before)
        ratios.append(times[1] / times[0])
    return statistics.median(ratios[WARM:])


def main() -> None:
    """Measure and print."""
    system, network, batch, seconds, place = sys.argv[1:]
    sys.path.insert(0, place)
    from plain_networks import PLAIN_NETWORKS  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    torch.manual_seed(1)
    factory, shape = PLAIN_NETWORKS[network]
    x, y = torch.rand(ROWS, *shape), torch.randint(CLASSES, (ROWS,))

    def rows() -> tuple[Tensor, Tensor]:
        index = torch.randint(ROWS, (int(batch),))
        return x[index], y[index]

    private = STEPS[system](factory(), int(batch), rows)
    print(json.dumps({"ratio": ratio(plain(factory(), rows), private, float(seconds))}))


if __name__ == "__main__":
    main()
