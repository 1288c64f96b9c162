"""Least squares beside iterative training on MNIST's strokes features, below and up to ε = 1.
`python -m tacit_lab.studies.closed_form --data DATA` writes out/closed-form.json and
docs/closed-form.png. `--quick` takes the bundled digits, one ε and one seed, and draws nothing: it
shows that the command runs.

Noise at every edge, in the simulator, as `frontier` has it, whose features and recipe are used. Of
the recipe, made for ε = 0.5 and more, the better of three step sizes on the test set is taken, so
it is favoured.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from tacit import config
from tacit.config import RunFile
from tacit.config.fingerprint import differences
from tacit.datasets.source import Benchmark
from tacit_lab.checkout import EXPERIMENTS, ROOT
from tacit_lab.papers.figures.draw import COLOURS, MARKERS
from tacit_lab.studies.frontier import AT_EDGE, FrontierCase, MnistFeatures, accuracy, run_of

EPSILONS = (0.05, 0.1, 0.25, 0.5, 1.0)
SEEDS = (1, 2, 3)
RATES = (100.0, 50.0, 25.0)  # step sizes of the recipe
CLOSED, STEPS = "least squares, one release an edge", "100 noisy gradients an edge"
PICTURE = ROOT / "docs" / "closed-form.png"


@dataclass(frozen=True, slots=True)
class ClosedFormGrid:
    """The points: of which run file the steps are, at which ε, seeds and step sizes."""

    steps: RunFile
    epsilons: Sequence[float]
    seeds: Sequence[int]
    rates: Sequence[float]

    def run_at(self, kind: str, epsilon: float, seed: int, rate: float) -> RunFile:
        """Return the run of a `kind` at ε, on the features of `steps`. rate: of STEPS."""
        content = differences(self.steps)
        content["run"]["seed"] = seed
        content["privacy"]["epsilon"] = epsilon
        if kind == STEPS:
            content["algorithm"]["learning_rate"] = rate
        else:
            content = {"data": content["data"], "run": {"seed": seed}}
            content |= {"algorithm": {"name": "least-squares"}, "privacy": {"epsilon": epsilon}}
        context = {"folder": self.steps.folder, "written": True}
        return RunFile.model_validate(content, context=context)

    def accuracies(self, kind: str, epsilon: float, rows: MnistFeatures) -> list[float]:
        """Return the accuracies of all seeds, by the best step size."""
        rates = self.rates if kind == STEPS else self.rates[:1]
        tried = [
            [accuracy(self.run_at(kind, epsilon, seed, rate), rows) for seed in self.seeds]
            for rate in rates
        ]
        return max(tried, key=mean)


def points(rows: MnistFeatures, grid: ClosedFormGrid) -> list[dict[str, Any]]:
    """Return both kinds at every ε."""
    measured = []
    for epsilon in grid.epsilons:
        for kind in (CLOSED, STEPS):
            values = grid.accuracies(kind, epsilon, rows)
            print(f"{kind}, {epsilon:g}: {', '.join(f'{v:.2f}' for v in values)}", flush=True)
            measured.append({"kind": kind, "epsilon": epsilon, "accuracy": values})
    return measured


def picture(measured: list[dict[str, Any]]) -> bytes:
    """Return the figure as PNG. The same points give the same bytes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawn, axis = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for number, kind in enumerate((CLOSED, STEPS)):
        line = [point for point in measured if point["kind"] == kind]
        x = [point["epsilon"] for point in line]
        y = [mean(point["accuracy"]) for point in line]
        axis.plot(x, y, color=COLOURS[number], marker=MARKERS[number], label=kind)
        for point in line:
            each = point["accuracy"]
            axis.scatter([point["epsilon"]] * len(each), each, s=9, color=COLOURS[number])
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(EPSILONS), [f"{epsilon:g}" for epsilon in EPSILONS])
    axis.set_xlabel("ε of each edge, δ = 1e-5 (smaller is more private)")
    axis.set_ylabel("MNIST test accuracy, %")
    axis.grid(visible=True, alpha=0.3)
    axis.legend(frameon=False)
    content = io.BytesIO()
    drawn.savefig(content, dpi=110, metadata={"Software": None})
    plt.close(drawn)
    return content.getvalue()


def grids(quick: bool) -> ClosedFormGrid:
    """Return the points that docs/accuracy.md reports, or one on the bundled digits."""
    if quick:
        content = differences(config.load(EXPERIMENTS / "audp-digits-strokes-eps2.toml"))
        content["run"]["updates"] = 50
        content["privacy"]["pushes"] = 11
        steps = RunFile.model_validate(content, context={"folder": EXPERIMENTS})
        return ClosedFormGrid(steps, (2.0,), SEEDS[:1], (content["algorithm"]["learning_rate"],))
    return ClosedFormGrid(run_of(FrontierCase(0.5, AT_EDGE), SEEDS[0]), EPSILONS, SEEDS, RATES)


def main() -> None:
    """Measure every point, write them down and draw them."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.closed_form")
    parser.add_argument("--data", type=Path, help="folder of the published data")
    parser.add_argument("--quick", action="store_true", help="one point on the bundled digits")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "closed-form.json")
    arguments = parser.parse_args()
    if arguments.data is None and not arguments.quick:
        parser.error("--data: needed for MNIST")
    torch.set_num_threads(1)
    grid = grids(arguments.quick)
    assert isinstance(grid.steps.source, Benchmark)
    measured = points(MnistFeatures(grid.steps.source, arguments.data), grid)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    if not arguments.quick:
        PICTURE.write_bytes(picture(measured))


if __name__ == "__main__":
    main()
