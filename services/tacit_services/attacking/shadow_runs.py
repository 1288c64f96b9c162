"""Shadow runs: the run definition, simulated on other draws of members, in processes.

Each has a seed of its own, and so other noise than the run and than one another. An attacker who
knew the noise would have no guarantee to break.
"""

from __future__ import annotations

import copy
import math
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit.attacks.likelihood_ratio import Draws
from tacit.attacks.membership_attacks import ShadowSignals
from tacit.config import RunFile
from tacit.config.fingerprint import differences
from tacit.errors import TacitError
from tacit.models import Model
from tacit_services import python_child
from tacit_services.attacking.dealt_rows import ShadowRows
from tacit_services.testbed.simulated_run import Simulation

_OF_JUDGING = ("evaluation",)  # it decides nothing of the model
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}
_MOST_SEEDS = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class TwinRun:
    """A simulated run: its model, who was a member (records,), and its ε; None: no guarantee."""

    model: Model
    params: torch.Tensor
    inside: npt.NDArray[np.bool_]
    epsilon: float | None

    def signals(self, rows: ShadowRows) -> npt.NDArray[np.float64]:
        """Return its signal of each record."""
        return rows.rows.signals(self.model, self.params)


@dataclass(frozen=True, slots=True, eq=False)
class ShadowWorld:
    """What shadow runs are made of: a run definition, its folder, rows, and a seed."""

    content: dict[str, Any]
    folder: Path
    rows: ShadowRows
    seed: int

    @classmethod
    def of(cls, run: RunFile, updates: int, rows: ShadowRows) -> ShadowWorld:
        """Return shadow runs of `run`, each of at most `updates` updates, as the run itself had."""
        content = copy.deepcopy(differences(run))
        for section in _OF_JUDGING:
            content.pop(section, None)
        of_run = content.setdefault("run", {})
        of_run.pop("stop", None)
        of_run["updates"] = updates
        return cls(content, run.folder, rows, run.run.seed)

    def run(self, number: int, drawn: Draws) -> TwinRun:
        """Simulate run `number` on members `drawn` (records,). Raises TacitError."""
        torch.set_num_threads(1)
        content = copy.deepcopy(self.content)
        content["run"]["seed"] = seed = (self.seed + 1 + number) % _MOST_SEEDS
        run = RunFile.model_validate(content, context={"folder": self.folder, "own_code": True})
        definition = run.define()
        members = self.rows.dealt(definition, drawn, seed)
        simulation = Simulation(definition, None, members.parts)
        simulation.simulator.run()
        reading = simulation.reading()
        if not reading.version:
            raise TacitError(f"shadow run {number}: no update was applied: {reading.reason}")
        promise = definition.promise
        epsilon = promise.epsilon(
            promise.spent(edge, record.spent, record.charged, record.spent)
            for edge, record in reading.records.items()
        )
        bounded = epsilon if math.isfinite(epsilon) else None
        return TwinRun(simulation.model, reading.params, members.inside, bounded)


RunSignals = tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]


def shadow_signals(
    world: ShadowWorld,
    draws: Draws,
    processes: int,
    report: Callable[[int], None] = lambda finished: None,
) -> ShadowSignals:
    """Return the signals of one run for each of `draws`, the same for any number of processes.

    report: learns how many have ended. Raises TacitError.
    """
    results: dict[int, RunSignals] = {}
    if processes == 1:
        for number, drawn in enumerate(draws):
            results[number] = _signals(world, number, drawn)
            report(len(results))
    else:
        _in_processes(world, draws, processes, results, report)
    ordered = [results[number] for number in range(len(draws))]
    signals, inside = (np.stack(column) for column in zip(*ordered, strict=True))
    return ShadowSignals(signals, inside)


def _in_processes(
    world: ShadowWorld,
    draws: Draws,
    processes: int,
    results: dict[int, RunSignals],
    report: Callable[[int], None],
) -> None:
    context = multiprocessing.get_context("spawn")
    with (
        python_child.inherited(_ONE_THREAD),
        ProcessPoolExecutor(processes, context, _begin, (world,)) as pool,
    ):
        jobs = {
            pool.submit(_of_worker, number, drawn): number for number, drawn in enumerate(draws)
        }
        try:
            for job in as_completed(jobs):
                results[jobs[job]] = job.result()
                report(len(results))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _signals(world: ShadowWorld, number: int, drawn: Draws) -> RunSignals:
    twin = world.run(number, drawn)
    return twin.signals(world.rows), twin.inside


# -- in a process of its own, which gets its world once ------------------------------------------

_worlds: list[ShadowWorld] = []


def _begin(world: ShadowWorld) -> None:
    _worlds[:] = [world]


def _of_worker(number: int, drawn: Draws) -> RunSignals:
    return _signals(_worlds[0], number, drawn)
