"""Running the points of a sweep on all cores, and keeping what they gave: what is known is not run again."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from services import simulation
from services.aggregator.evaluator import Points
from tacit import datasets
from tacit.algorithms.server import ServerRole
from tacit.config import RunFile
from tacit.datasets import Dataset
from tacit.privacy.accounting import epsilon_pld
from tacit.vectors import mean_gradient

ROOT = Path(__file__).parents[2]
Result = dict[str, Any]
NORM_ROWS = 500  # test rows whose mean gradient's norm is a point's


@lru_cache(maxsize=1)
def code_version() -> str:
    """SHA-256 of every file that a result depends on."""
    digest = hashlib.sha256()
    files = [*(ROOT / "src" / "tacit").rglob("*.py"), ROOT / "services" / "simulation.py", Path(__file__)]
    for file in sorted(files):
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def key(run: RunFile) -> str:
    """The name of a point: everything in the run file, the world and the seed included, and the code."""
    return hashlib.sha256(f"{run.model_dump_json()}|{code_version()}".encode()).hexdigest()[:24]


def measure(run: RunFile, root: Path | None) -> Result:
    """Simulate one point: its series, and ε of the edge that spent most (null: no guarantee)."""
    torch.set_num_threads(1)
    simulated = simulation.Simulation(run, root)
    test = _test(run.data.dataset, run.data.features, root)
    series: list[Result] = []
    x, y = test.x[:NORM_ROWS], test.y[:NORM_ROWS]

    def record(version: int, accuracy: float, loss: float, samples: int) -> None:
        role = simulated.role
        norm = float(torch.linalg.vector_norm(mean_gradient(simulated.model, role.params, x, y)))
        point = {"version": version, "accuracy": accuracy, "loss": loss, "gradient_norm": norm, "clip": role.clip}
        series.append({name: round(value, 6) for name, value in (point | simulated.clock()).items()})

    points = Points(run, simulated.model, test, record)

    def observe(role: ServerRole) -> None:
        if not role.halted and points.due(role.version):
            points.measure(role.version, role.params, points.sample)

    simulated.simulator.run(observe)
    points.measure(simulated.role.version, simulated.role.params, points.test)
    histories = {record.spent for record in simulated.role.edges.values()}
    epsilon = max((epsilon_pld(history, run.privacy.delta) for history in histories), default=0.0)
    known = epsilon < float("inf") and run.privacy.private
    staleness = simulated.role.staleness
    mean = sum(tau * count for tau, count in staleness.items()) / max(1, staleness.total())
    return {
        "series": series, "epsilon": round(epsilon, 4) if known else None, "staleness": round(mean, 2),
        "reason": simulated.role.halted,
    }  # fmt: skip


@lru_cache(maxsize=2)
def _test(dataset: str, features: datasets.Features, root: Path | None) -> Dataset:
    return datasets.load(dataset, "test", root, features=features)


def sweep(
    runs: Iterable[RunFile], folder: Path, root: Path | None, jobs: int, done: Callable[[int, int], None]
) -> dict[str, Result]:
    """Results by `key`, from `folder` or measured now on `jobs` processes. `done(points done, points to do)`.

    Each result is a file of its own, written whole: a sweep that is ended goes on from there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {key(run): run for run in runs}
    todo = {name: run for name, run in wanted.items() if not (folder / f"{name}.json").exists()}
    done(0, len(todo))
    # Largest first, and one core each; a fresh interpreter, as threads of torch do not survive a fork.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
    try:
        ordered = sorted(todo.items(), key=lambda item: (item[1].data.dataset, -item[1].run.updates))
        futures = {pool.submit(measure, run, root): name for name, run in ordered}
        for count, future in enumerate(as_completed(futures), 1):
            _write(folder / f"{futures[future]}.json", future.result())
            done(count, len(todo))
    finally:  # interrupted, or one has failed: the others need not be waited for
        pool.shutdown(cancel_futures=True)
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in wanted}


def _write(path: Path, result: Result) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(path)
