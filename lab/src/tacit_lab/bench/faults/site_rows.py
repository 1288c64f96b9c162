"""The own table that all systems learn: rows of made-up people, dealt to the sites.

Written twice, as CSV for tacit and as arrays for the peers' own clients: the same numbers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit_lab.bench.faults.fault_plan import SiteTask

BOUND = 3.0


def write(folder: Path, task: SiteTask, seed: int) -> None:
    """Write site{k}.csv, site{k}.npz and public.csv into `folder`."""
    generator = np.random.default_rng(seed)
    direction = generator.normal(size=task.features)
    count = task.rows + task.test_rows
    x = generator.normal(size=(count, task.features)).clip(-BOUND, BOUND).round(4)
    score = x @ direction + 0.5 * x[:, 0] * x[:, 1] + generator.normal(size=count)
    y = (score > 0).astype(np.int64)
    each = task.rows // task.sites
    for site in range(task.sites):
        part = slice(site * each, (site + 1) * each)
        _write_table(folder / f"site{site}.csv", x[part], y[part])
        inputs = (x[part] / (2 * BOUND) + 0.5).astype(np.float32)
        np.savez(folder / f"site{site}.npz", x=inputs, y=y[part])
    _write_table(folder / "public.csv", x[task.rows :], y[task.rows :])


def _write_table(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    names = ",".join([f"x{number}" for number in range(x.shape[1])] + ["y"])
    lines = [",".join(f"{value:.4f}" for value in row) for row in x]
    rows = "".join(f"{line},{label}\n" for line, label in zip(lines, y, strict=True))
    path.write_text(f"{names}\n{rows}", encoding="ascii")
