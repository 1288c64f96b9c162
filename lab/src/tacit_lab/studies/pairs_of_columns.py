"""`ebm` with and without pairs of columns, on Adult and on a table whose truth has a pair.

    python -m tacit_lab.studies.pairs_of_columns [--tables adult pair] [--epsilons 1 …]
        [--seeds 1 …]

measures what lab/measured/pairs.json does not have yet, and prints the table of docs/accuracy.md.
Tables, edges and noise are those of `seven_tables`. interactions: 0, or 5 that are chosen. listed:
the pair of the truth is named in the run file, so that nothing is chosen.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import tomlkit
import torch

from tacit import config
from tacit.config import RunFile
from tacit.models.additive import AdditiveModel
from tacit_lab.checkout import ROOT
from tacit_lab.studies.measured_rows import MeasuredRows
from tacit_lab.studies.seven_tables import judged, simulated, table
from tacit_lab.studies.unequal_tables import SHARES, UnequalTable

OUT = ROOT / "lab" / "measured" / "pairs.json"
TABLES = ("adult", "pair")
EPSILONS = (1.0, 4.0)
SEEDS = (1, 2, 3)
KEYS: dict[str, dict[str, Any]] = {
    "0": {},
    "5": {"interactions": 5},
    "listed": {"pairs": [["c4", "c5"]]},
}


@dataclass(frozen=True, slots=True)
class PairsCase:
    """One measurement. pairs: a key of `KEYS`."""

    table: str
    pairs: str
    epsilon: float
    seed: int


def main() -> None:
    """Measure what is missing, write it down row by row, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.pairs_of_columns")
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measured = MeasuredRows(arguments.out, PairsCase)
    cases = [
        PairsCase(name, pairs, epsilon, seed)
        for seed in arguments.seeds
        for name in arguments.tables
        for epsilon in arguments.epsilons
        for pairs in KEYS
        if pairs != "listed" or name == "pair"
    ]
    for case in measured.missing(cases):
        measured.add(case, at_edges(case))
    print(as_markdown(measured.rows))


def at_edges(case: PairsCase) -> dict[str, Any]:
    """Return what comes of a run of five edges, and which pairs it chose."""
    rows = table(case.table)
    began = time.process_time()
    simulation = simulated(run_of(rows, case), rows.dealt(case.seed))
    seconds = round(time.process_time() - began, 1)
    model = simulation.model
    assert isinstance(model, AdditiveModel)
    chosen = [model.pairs[number].name for number in getattr(simulation.role, "pairs", ())]
    return judged(simulation, rows.rows[1]) | {"chosen": chosen, "seconds": seconds}


def run_of(rows: UnequalTable, case: PairsCase) -> RunFile:
    """Return the run of a case."""
    each = len(rows.rows[0]) // len(SHARES)
    content = {
        "data": rows.section | {"rows": each, "rows_max": 3 * each},
        "edges": {"count": len(SHARES)},
        "algorithm": {"name": "ebm"} | KEYS[case.pairs],
        "privacy": {"epsilon": case.epsilon},
    }
    return config.parse(tomlkit.dumps(content), rows.name, seed=case.seed)


def as_markdown(measured: dict[PairsCase, dict[str, Any]]) -> str:
    """Return a line for each table and ε: mean AUC, its least and most, and how many seeds."""
    lines = ["| table | ε | " + " | ".join(KEYS) + " |", "|---|---|" + "---|" * len(KEYS)]
    for name in TABLES:
        for epsilon in sorted({case.epsilon for case in measured if case.table == name}):
            cells = [_cell(measured, name, pairs, epsilon) for pairs in KEYS]
            lines.append(f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(measured: dict[PairsCase, dict[str, Any]], name: str, pairs: str, epsilon: float) -> str:
    values = [
        row["auc"]
        for case, row in measured.items()
        if (case.table, case.pairs, case.epsilon) == (name, pairs, epsilon)
    ]
    if not values:
        return ""
    return f"{fmean(values):.4f} ({min(values):.3f} to {max(values):.3f}; {len(values)})"


if __name__ == "__main__":
    main()
