"""Flower's simulation of plain clients (package index: flwr[simulation])."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit import datasets
from tacit_lab.bench.peers.window import Rate, lines, system

RUNNER = Path(__file__).parent / "in_flower.py"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "OMP_NUM_THREADS": "1"}


def rate(python: Path, folder: Path, data: Path, seconds: float, edges: int, batch: int) -> Rate:
    """Return the rate of clients' updates, `edges` a round. python: of a venv with Flower."""
    rows = datasets.load("mnist", "train", data)
    np.savez(folder / "rows.npz", x=rows.x[:10_000].numpy(), y=rows.y[:10_000].numpy())
    command = [str(python), "-u", str(RUNNER), str(folder / "rows.npz"), str(edges), str(batch)]
    with system() as running:
        log = running.start(command, folder, "log", QUIET)
        return running.rate(lambda: edges * lines(log, b"round"), seconds)
