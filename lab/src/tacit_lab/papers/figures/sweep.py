"""Measures the runs of figures on all cores, except those whose results are stored already."""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path

import torch
from tacit_services import python_child
from tacit_services.aggregator.reporting.evaluation import Points, public_sample
from tacit_services.children.preload import die_with_parent
from tacit_services.testbed import simulated_run
from torch import Tensor

from tacit import datasets
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.datasets import Benchmark, Dataset
from tacit.datasets.source import published_only
from tacit.errors import ConfigError, ServiceError
from tacit.models.vectors import mean_gradient
from tacit.privacy.report import composed
from tacit_lab.papers.figures import stored_results
from tacit_lab.papers.figures.stored_results import RequestedRun, Result
from tacit_lab.papers.figures.untrained_points import UntrainedPoint

NORM_ROWS = 500  # test rows, or words, over whose mean gradient the norm of a point is taken
MOST_LOSS = 50.0  # the largest loss whose perplexity is still a number


class _Series:
    """The points of a simulation: accuracy and loss, and what figures show besides."""

    def __init__(self, simulated: simulated_run.Simulation, test: Dataset) -> None:
        self.points: list[Result] = []
        self._simulated = simulated
        sample = public_sample(simulated.definition, test)
        self._points = Points(simulated.definition, simulated.model, test, sample, self._record)
        self._rows = max(
            1,
            NORM_ROWS
            // (
                simulated.model.shape[0]
                if datasets.is_text(simulated.definition.source.name)
                else 1
            ),
        )
        self._measured: tuple[int, Tensor, Dataset] | None = None

    def observe(self, role: ServerRole) -> None:
        """Measure a point, if one is due.

        A vertical run has none until its parties' embeddings have come.
        """
        if role.halted:
            due = None
        else:
            due = role.evaluation_input(self._points.sample)
        if due is not None and self._points.due(due[0]):
            self._measure(due)

    def end(self, role: ServerRole) -> None:
        """Measure the last point, on all test rows."""
        if (due := role.evaluation_input(self._points.test)) is not None:
            self._measure(due)

    def _measure(self, due: tuple[int, Tensor, Dataset]) -> None:
        self._measured = due
        self._points.measure(*due)

    def _record(
        self, version: int, accuracy: float, loss: float, samples: int, metrics: dict[str, float]
    ) -> None:
        assert self._measured is not None
        _, params, data = self._measured
        model = self._simulated.model
        role = self._simulated.role
        norm = torch.linalg.vector_norm(
            mean_gradient(model, params, data.x[: self._rows], data.y[: self._rows])
        )
        point = {
            "version": version,
            "accuracy": accuracy,
            "loss": loss,
            "gradient_norm": float(norm),
        }
        point |= {"clip": role.clip, "perplexity": math.exp(min(loss, MOST_LOSS))}
        if data.classes == 2:
            point["auc"] = metrics["auc"]
        self.points.append(
            {name: round(value, 6) for name, value in (point | self._simulated.clock()).items()}
        )


def measure(run: RunFile, root: Path | None) -> Result:
    """Simulate one run: its series, and the ε that `tacit simulate` reports (None: no guarantee).

    Raises ConfigError where nothing was trained.
    """
    torch.set_num_threads(1)
    if isinstance(run, UntrainedPoint):
        return run.answer(root)
    definition = run.define()
    simulated = simulated_run.Simulation(definition, root)
    series = _Series(simulated, _test(published_only(definition.source), root))
    simulated.simulator.run(series.observe)
    series.end(simulated.role)
    if simulated.role.version == 0:  # an untrained model's accuracy is no result
        why = f"{simulated.role.halt_reason}; {simulated.role.stale} answers came too late"
        raise ConfigError(
            f"algorithm.name={definition.algorithm.name!r} on {definition.source.name}: "
            f"not one update ({why})"
        )
    histories = [record.spent for record in simulated.role.edges.values()]
    epsilon = composed(run.algorithm.composition, histories, run.privacy.delta)
    finite = epsilon < float("inf") and run.privacy.private
    staleness = simulated.role.staleness
    mean = sum(tau * count for tau, count in staleness.items()) / max(1, staleness.total())
    return {
        "series": series.points,
        "epsilon": round(epsilon, 4) if finite else None,
        "staleness": round(mean, 2),
        "reason": simulated.role.halt_reason,
    }


@lru_cache(maxsize=2)
def _test(source: Benchmark, root: Path | None) -> Dataset:
    return source.test(root)


def sweep(
    runs: Mapping[str, Iterable[RunFile]],
    folder: Path,
    root: Path | None,
    jobs: int,
    report: Callable[[int, int], None],
    fallback: Path | None = None,
) -> dict[str, Result]:
    """Run what has no result yet on `jobs` processes; returns the result of every run, by its name.

    `runs` are given by figure. Results in `folder` or `fallback` are taken from there. Each process
    appends every result to `folder` as soon as it has it. So a sweep that was ended, in any way,
    goes on where it was. `done(count, total)` is called as results come: how many of the runs that
    were not known are finished, and how many there were.

    Raises ConfigError where `folder` cannot be written, ServiceError when a process was killed.
    """
    measured, todo = stored_results.look_up(runs, folder, fallback)
    report(0, len(todo))
    # Largest first, one core each; fresh interpreters, as torch's threads do not survive a fork.
    others = multiprocessing.active_children()
    with python_child.inherited():  # its queues start a process, too
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_obey)
    try:
        ordered = sorted(
            todo.items(), key=lambda item: (item[1].run.source.name, -item[1].run.run.updates)
        )
        with python_child.inherited():  # a process is started as its work is handed in
            futures = [pool.submit(_measure_all, same, folder, root) for same in _alike(ordered)]
        count = 0
        for future in as_completed(futures):
            results = future.result()
            measured |= results
            count += len(results)
            report(count, len(todo))
    except BrokenProcessPool as error:
        raise ServiceError(
            "figures: one of its processes was killed; what was done is kept, run it again"
        ) from error
    finally:  # after an interrupt or a failure, nobody waits for the other processes
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in others:
                child.terminate()
    return measured


def _obey() -> None:
    """Let Ctrl-C, and the parent's death, end this process of the sweep without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()


def _alike(runs: Iterable[tuple[str, RequestedRun]]) -> Iterable[dict[str, RequestedRun]]:
    """Group runs that differ in nothing but the seed.

    One process measures a group: what it works out of a budget then serves all of them.
    """
    groups: dict[str, dict[str, RequestedRun]] = {}
    for name, request in runs:
        seed = {"run": request.run.run.model_copy(update={"seed": 0})}
        groups.setdefault(stored_results.result_name(request.run.model_copy(update=seed)), {})[
            name
        ] = request
    return groups.values()


def _measure_all(
    runs: Mapping[str, RequestedRun], folder: Path, root: Path | None
) -> dict[str, Result]:
    results = {}
    for name, request in runs.items():
        results[name] = measure(request.run, root)
        stored_results.store(folder, request, results[name])
    return results
