"""Accuracy against ε on MNIST, with the noise at every edge, at a trusted server, and without any.
`python -m tacit_lab.studies.frontier --data DATA` writes out/frontier.json and docs/frontier.png.

The recipe is experiments/audp-mnist-strokes*.toml's, in the simulator, where edges are as quick as
each other. The features are computed once. A trusted server that adds one noise to the sum of all
edges is simulated by edges that each add 1/√K of it. Also what becomes of accuracy at ε = 2 where
edges are 1, 1, 1, 2 and 4 times as slow, and where one is away for half of the run. Values are
means of three seeds each. It takes half an hour, of which features take four minutes.
"""

from __future__ import annotations

import argparse
import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from tacit_services.testbed.simulated_run import Simulation

from tacit import config
from tacit.config import RunFile
from tacit.config.fingerprint import differences
from tacit.datasets.source import Benchmark, EdgePart
from tacit_lab.checkout import EXPERIMENTS, ROOT
from tacit_lab.papers.figures.draw import COLOURS, MARKERS

FILES = {0.5: "-eps05", 1.0: "-eps1", 2.0: "", 4.0: "-eps4"}  # of experiments, by ε
SEEDS = (1, 2, 3)
AT_EDGE = "at every edge"
AT_SERVER = "at a trusted server"
NONE = "none"
UNCLIPPED_RATE = 0.5  # of gradients of their own length, which nothing clips without noise
PICTURE = ROOT / "docs" / "frontier.png"


@dataclass(frozen=True, slots=True)
class FrontierCase:
    """One point: which noise at which ε, or at ε = 2 other edges, as `edges` states in words."""

    epsilon: float
    noise: str
    edges: str = ""


CASES = [
    *(FrontierCase(epsilon, noise) for epsilon in FILES for noise in (AT_EDGE, AT_SERVER)),
    FrontierCase(2.0, NONE),
    FrontierCase(2.0, AT_EDGE, "1:1:1:2:4"),
    FrontierCase(2.0, AT_EDGE, "one away for half of the run"),
]


class MnistFeatures:
    """MNIST's features, computed once, dealt as a run deals them."""

    def __init__(self, source: Benchmark, root: Path | None) -> None:
        self._train = source.train(root)
        self.test = source.test(root)
        self._root = root

    def parts(self, run: RunFile) -> list[EdgePart]:
        """Return each edge's rows."""
        assert isinstance(run.source, Benchmark)
        dealt = run.source.parts(self._root)
        return [EdgePart(self._train.take(index), len(index)) for index in dealt]


def run_of(case: FrontierCase, seed: int) -> RunFile:
    """Return the run of `case`."""
    path = EXPERIMENTS / f"audp-mnist-strokes{FILES[case.epsilon]}.toml"
    run = config.load(path)
    content = differences(run)
    content["run"]["seed"] = seed
    content["evaluation"] = {"every": run.run.updates}
    if case.noise == NONE:
        content["privacy"] = {"mechanism": "none", "batch": content["privacy"]["batch"]}
        content["algorithm"] |= {"name": "asgd", "learning_rate": UNCLIPPED_RATE}
    elif case.noise == AT_SERVER:
        least = run.plan(0).noise_multiplier / math.sqrt(run.edges.count)
        content["privacy"] |= {"noise_multiplier": least, "epsilon": 1e3, "mechanism": "gaussian"}
    content |= _edges(case, run)
    return RunFile.model_validate(content, context={"folder": path.parent})


def _edges(case: FrontierCase, run: RunFile) -> dict[str, Any]:
    if case.edges == "1:1:1:2:4":
        return {"edges": {"slowdown": [1.0, 1.0, 1.0, 2.0, 4.0]}}
    if case.edges:  # an edge takes a second for a task
        seconds = run.run.updates / run.edges.count
        away = {"edge": 1, "leaves": seconds / 4, "returns": 3 * seconds / 4}
        return {"network": {"away": [away]}}
    return {}


def accuracy(run: RunFile, rows: MnistFeatures) -> float:
    """Return the accuracy in per cent on the whole test set after the run."""
    simulation = Simulation(run.define(), None, rows.parts(run))
    metrics = simulation.measured(simulation.definition.metrics(), rows.test)
    assert metrics is not None
    return 100 * metrics["accuracy"]


def measured(rows: MnistFeatures) -> Iterator[dict[str, Any]]:
    """Yield every case with its accuracies."""
    for case in CASES:
        accuracies = [accuracy(run_of(case, seed), rows) for seed in SEEDS]
        print(f"{case}: {', '.join(f'{value:.2f}' for value in accuracies)}", flush=True)
        yield asdict(case) | {"accuracy": accuracies}


def picture(points: list[dict[str, Any]]) -> bytes:
    """Return the frontier as PNG; the same points give the same bytes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawn, axis = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for number, noise in enumerate((AT_EDGE, AT_SERVER)):
        line = [point for point in points if point["noise"] == noise and not point["edges"]]
        x = [point["epsilon"] for point in line]
        y = [mean(point["accuracy"]) for point in line]
        axis.plot(x, y, color=COLOURS[number], marker=MARKERS[number], label=f"noise {noise}")
        for point in line:
            axis.scatter([point["epsilon"]] * 3, point["accuracy"], s=9, color=COLOURS[number])
    plain = next(mean(point["accuracy"]) for point in points if point["noise"] == NONE)
    axis.axhline(plain, color="0.4", linestyle="--", label="no noise")
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(FILES), [f"{epsilon:g}" for epsilon in FILES])
    axis.set_xlabel("ε of each edge, δ = 1e-5 (smaller is more private)")
    axis.set_ylabel("MNIST test accuracy, %")
    axis.grid(visible=True, alpha=0.3)
    axis.legend(frameon=False)
    content = io.BytesIO()
    drawn.savefig(content, dpi=110, metadata={"Software": None})
    plt.close(drawn)
    return content.getvalue()


def main() -> None:
    """Measure every case, write them down and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the published data")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "frontier.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    first = run_of(CASES[0], SEEDS[0])
    assert isinstance(first.source, Benchmark)
    points = list(measured(MnistFeatures(first.source, arguments.data)))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(points, indent=1), encoding="utf-8")
    PICTURE.write_bytes(picture(points))


if __name__ == "__main__":
    main()
