"""One liar of five on equal and unequal data: `python -m tacit_lab.studies.unequal`,
out/unequal.json.

The setting is `tacit_lab.studies.poison`'s. Data is dealt by chance, by Dirichlet 0.1, or so that
one edge alone has class 7, whose recall stands in brackets. Beside every attack stand the honest
run with and without the guard, and the run without the liar's edge, whose rows are then lost. There
is also a liar that trains on wrong labels, as an honest edge with such data would.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tacit_lab.studies.lies import UNEQUALLY, WAVES
from tacit_lab.studies.poison import DIRICHLET, GUARD, LONE, Case, outcome

DATA = {"equal": "", "Dirichlet 0.1": DIRICHLET, "a class alone": LONE}
ABSENT = "NaN"  # refused at the door, so the edge is asked no more
SEEDS = (402, 403)  # none at which a number of the guard was chosen
FEW = (
    "wrong labels",
    "sign flip",
    "pull within the law",
    "a tenth of it",
    "inner product",
    "framing",
    "wave of 12, 1",
    "wave of 6, 1",
)


def cases(
    algorithms: list[str], seeds: list[int], lies: list[str], data: list[str]
) -> Iterator[Case]:
    """Yield all runs of the table, seed by seed."""
    for seed in seeds:
        for partition in (DATA[name] for name in data):
            for name in algorithms:
                yield Case(name, seed=seed, partition=partition)
                yield Case(name, ABSENT, 1, seed, partition=partition)
                yield Case(name, seed=seed, guard=GUARD, partition=partition)
                for lie in lies:
                    yield Case(name, lie, 1, seed, GUARD, partition)


def _row(case: Case) -> str:
    if not case.lie:
        if case.guard:
            return "honest"
        return "honest, without the guard"
    if case.lie == ABSENT:
        return "without that edge"
    return case.lie


def table(results: list[tuple[Case, dict[str, Any]]]) -> str:
    """Return Markdown: a line per attack, a column per algorithm and data, a number per seed."""
    cells: dict[tuple[str, str, str], list[str]] = {}
    data_names = {partition: name for name, partition in DATA.items()}
    for case, result in results:
        cell = f"{result['accuracy']:.1f}"
        if case.partition == LONE:
            cell += f" [{result['recall']:.0f}]"
        if result["accused"]:
            cell += " shut out: " + ", ".join(result["accused"])
        cells.setdefault((_row(case), case.algorithm, data_names[case.partition]), []).append(cell)
    columns = list(dict.fromkeys((algorithm, data) for _, algorithm, data in cells))
    lines = ["| | " + " | ".join(f"{a}, {d}" for a, d in columns) + " |"]
    lines.append("|---|" + "---|" * len(columns))
    for row in dict.fromkeys(row for row, _, _ in cells):
        texts = (" · ".join(cells.get((row, *column), ["-"])) for column in columns)
        lines.append(f"| {row} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run all cases, some at a time; write them down as they come, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithms", nargs="+", default=["mapa", "fedasync"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    lies = parser.add_mutually_exclusive_group()
    lies.add_argument("--lies", nargs="+", choices=UNEQUALLY | WAVES, default=list(FEW))
    lies.add_argument("--all", action="store_true", help="every lie, and waves of all lengths")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("out/unequal.json"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    if arguments.all:
        chosen = list(UNEQUALLY | WAVES)
    else:
        chosen = arguments.lies
    every = list(cases(arguments.algorithms, arguments.seeds, chosen, arguments.data))
    results: list[tuple[Case, dict[str, Any]]] = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        for case, result in zip(every, pool.map(outcome, every), strict=True):
            results.append((case, result))
            documents = [{"case": case.__dict__} | result for case, result in results]
            arguments.out.write_text(json.dumps(documents, indent=1), encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
