"""A(DP)²SGD against SYNC at the same noise where peers differ in speed, under the virtual clock:
the paper's cases.

    python -m tacit_lab.studies.cases [--seeds 5]     (a minute on two cores; writes out/cases.json)

Eight peers as in experiments/adp2sgd-digits.toml; a step takes one virtual second, a message 0.04.
For each case and target: the virtual seconds in which either gets there, and the mean of the seeds'
ratios with its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit_lab.checkout import EXPERIMENTS
from tacit_lab.papers.figures import sweep
from tacit_lab.papers.figures.verdicts import half_width
from tacit_lab.studies.vertical_runs import changed

FILE = EXPERIMENTS / "adp2sgd-digits.toml"
TARGETS = (0.85, 0.9)
CASES: dict[str, dict[str, Any]] = {
    "all equally fast": {},
    "I: every step twice as long with probability 1/8": {"network": {"slow_tasks": 0.125}},
    "II: one peer ten times slower": {"edges": {"slowdown": [1.0] * 7 + [10.0]}},
}


def reached(series: list[dict[str, Any]], target: float) -> float:
    """Return virtual seconds until the first evaluation of at least `target`.

    nan: never; it is no part of a mean.
    """
    return next(
        (point["virtual_time_s"] for point in series if point["accuracy"] >= target), float("nan")
    )


def case(changes: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Measure both algorithms, seed by seed."""
    network = {"uplink": {"seconds": 0.04}} | changes.get("network", {})
    results: dict[str, list[list[float]]] = {"adp2sgd": [], "sync": []}
    for name, rows in results.items():
        for seed in range(1, seeds + 1):
            run = changed(
                FILE,
                run={"seed": seed},
                algorithm={"name": name},
                network=network,
                edges=changes.get("edges", {}),
                evaluation={"every": 8},
            )
            series = sweep.measure(run, None)["series"]
            rows.append([series[-1]["accuracy"], *(reached(series, target) for target in TARGETS)])
    ours, theirs = (np.array(rows) for rows in results.values())
    apart = ours[:, 0] - theirs[:, 0]
    times = {}
    for place, target in enumerate(TARGETS, 1):
        both = ~np.isnan(ours[:, place] + theirs[:, place])
        ratio = (theirs / ours)[both, place]
        times[str(target)] = {
            "seeds": int(both.sum()),
            "seconds": [_rounded(rows[both, place].mean()) for rows in (ours, theirs)],
            "ratio": [_rounded(ratio.mean()), _rounded(half_width(ratio))],
        }
    accuracy = [_rounded(rows[:, 0].mean(), 4) for rows in (ours, theirs)]
    return (
        results
        | {
            "accuracy": accuracy,
            "apart": [_rounded(apart.mean(), 4), _rounded(half_width(apart), 4)],
        }
        | times
    )


def _rounded(value: Any, digits: int = 2) -> float:
    return round(float(value), digits)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.cases")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/cases.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for name, changes in CASES.items():
        results[name] = case(changes, arguments.seeds)
        print(
            name,
            {key: results[name][key] for key in ("accuracy", "apart", *map(str, TARGETS))},
            flush=True,
        )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
