"""One edge of five is away, slow, or lies: what it costs `ebm` and `least-squares` on Adult.

    python -m tacit_lab.studies.table_faults [--algorithms ebm …] [--faults …] [--seeds 1 …]

measures what lab/measured/table-faults.json does not have yet, and prints a table for
docs/attacks.md. ε = 1 at each edge, edges and rows as in `tables`. The third edge fails, which has
20 % of the rows, as many as the mean. A task takes a virtual second, give or take half.
It needs TACIT_DATA.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from tacit_services.testbed.simulated_run import Simulation

from tacit.datasets import Dataset
from tacit.datasets.source import EdgePart
from tacit_lab.checkout import ROOT
from tacit_lab.studies.measured_rows import MeasuredRows
from tacit_lab.studies.seven_tables import judged, run_of, table
from tacit_lab.studies.unequal_tables import SHARES

OUT = ROOT / "lab" / "measured" / "table-faults.json"
TABLE, EPSILON = "adult", 1.0
ALGORITHMS = ("ebm", "least-squares")
SEEDS = (1, 2, 3)
ODD = 2  # the edge that fails
_AWAY = 5.0  # virtual seconds that it is away, and then present
_ABSENCES = 40
_COMPUTE = {"compute": {"model": "uniform", "seconds": 1.0, "spread": 0.5}}
KeySections = dict[str, Any]


def _slow() -> KeySections:
    slowdown = [10.0 if number == ODD else 1.0 for number in range(len(SHARES))]
    return {"edges": {"count": len(SHARES), "slowdown": slowdown}}


def _away() -> KeySections:
    absences = [
        {"edge": ODD, "leaves": 2 * _AWAY * turn, "returns": 2 * _AWAY * turn + _AWAY}
        for turn in range(_ABSENCES)
    ]
    return {"network": _COMPUTE | {"away": absences}}


def _guard() -> KeySections:
    return {"guard": {"sums": True, "agreement": True, "rows": 3.0}}


def _another(rows: Dataset, others: Dataset, seed: int) -> Dataset:
    """Return rows with labels of another edge's, in no order of its own."""
    drawn = np.random.default_rng(seed).integers(len(others), size=len(rows))
    return replace(rows, y=others.y[torch.from_numpy(drawn)])


def _turned(rows: Dataset, others: Dataset, seed: int) -> Dataset:
    return replace(rows, y=1 - rows.y)


@dataclass(frozen=True, slots=True)
class TableFault:
    """What happens to the odd edge: sections of the run, and what becomes of its labels."""

    sections: Callable[[], KeySections] = dict
    labels: Callable[[Dataset, Dataset, int], Dataset] | None = None
    without: bool = False  # whether the edge does not take part


FAULTS = {
    "none": TableFault(),
    "without that edge": TableFault(without=True),
    "away for half of the time": TableFault(_away),
    "ten times slower": TableFault(_slow),
    "another edge's labels": TableFault(labels=_another),
    "another edge's labels, guard": TableFault(_guard, _another),
    "turned labels": TableFault(labels=_turned),
    "turned labels, guard": TableFault(_guard, _turned),
    "none, guard": TableFault(_guard),
}


@dataclass(frozen=True, slots=True)
class FaultCase:
    """One measurement."""

    algorithm: str
    fault: str
    seed: int


def main() -> None:
    """Measure what is missing, write it down row by row, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.table_faults")
    parser.add_argument("--algorithms", nargs="*", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--faults", nargs="*", choices=tuple(FAULTS), default=tuple(FAULTS))
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measured = MeasuredRows(arguments.out, FaultCase)
    cases = [
        FaultCase(algorithm, fault, seed)
        for seed in arguments.seeds
        for algorithm in arguments.algorithms
        for fault in arguments.faults
        if algorithm == "ebm" or "guard" not in fault  # least squares has no law of an update
    ]
    for case in measured.missing(cases):
        measured.add(case, outcome(case))
    print(as_markdown(measured.rows))


def outcome(case: FaultCase) -> dict[str, Any]:
    """Return what becomes of a run in which the odd edge fails."""
    rows = table(TABLE)
    fault = FAULTS[case.fault]
    sections = {"network": _COMPUTE} | fault.sections()
    run = run_of(rows, case.algorithm, EPSILON, case.seed, **sections)
    dealt = rows.dealt(case.seed)
    if fault.labels is not None:
        dealt[ODD] = fault.labels(dealt[ODD], dealt[0], case.seed)
    most = getattr(run.data, "rows_max", 0)
    parts = [EdgePart(each, most) for each in dealt]
    simulation = Simulation(run.define(), None, parts)
    if fault.without:
        simulation.simulator.edges.pop(f"edge-{ODD}")
    simulation.simulator.run()
    role = simulation.role
    odd = role.edges.get(f"edge-{ODD}")
    return judged(simulation, rows.rows[1]) | {
        "virtual_seconds": round(simulation.simulator.now, 1),
        "updates_of_it": odd.updates if odd else 0,
        "accused": sorted(role.accused),
        "discounted": sorted(role.discounted),
    }


def as_markdown(measured: dict[FaultCase, dict[str, Any]]) -> str:
    """Return a line for each fault: mean AUC and log loss of each algorithm, and virtual time."""
    lines = ["| | " + " | ".join(ALGORITHMS) + " |", "|---|" + "---|" * len(ALGORITHMS)]
    for fault in FAULTS:
        cells = []
        for algorithm in ALGORITHMS:
            rows = [
                row
                for case, row in measured.items()
                if (case.algorithm, case.fault) == (algorithm, fault)
            ]
            cells.append(_cell(rows) if rows else "")
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(rows: list[dict[str, Any]]) -> str:
    auc, loss, time, updates = (
        fmean(row[key] for row in rows)
        for key in ("auc", "log_loss", "virtual_seconds", "updates_of_it")
    )
    of_seeds = ", ".join(f"{row['auc']:.3f}" for row in rows)
    return f"{auc:.3f} ({of_seeds}), {loss:.3f}, {time:.0f} s, {updates:.0f} of it"


if __name__ == "__main__":
    main()
