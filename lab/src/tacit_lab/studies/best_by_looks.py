"""Which model is kept by noisy looks at ε = 0.2, and which a public test set would choose.

`python -m tacit_lab.studies.best_by_looks [seed ...]` measures what lab/measured/best-by-looks.json
does not have yet, and prints the table of docs/judging.md. The default is seeds 1 to 20. It takes
some seconds for each case and seed on one core. TACIT_DATA names the folder of data sets. A
measurement that has ended is not repeated, so it may be ended and started again.

The runs of CASES are such that the choice matters: their steps are far too long, so the accuracy
goes up and down from look to look. The public choice is the best of the looks' models on the test
set, and both are compared on that set, which is in its favour. The roles run in the simulator, with
noise from a seed: no release.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from tacit_services.testbed.simulated_run import Simulation
from torch import Tensor

from tacit import config
from tacit.algorithms.base.looks import summed
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.datasets.source import published_only
from tacit.judging.look_figures import figures
from tacit.models import evaluate
from tacit.privacy.accounting import epsilon_pld
from tacit_lab.checkout import ROOT

OUT = ROOT / "lab" / "measured" / "best-by-looks.json"
WITHIN = 0.005  # of the accuracy
EPSILON = 0.2
_RUN = """
run.updates = {updates}
data.dataset = "{data}"
model.name = "logistic"
algorithm.name = "audp"
algorithm.learning_rate = {rate}
privacy.epsilon = 2.0
privacy.pushes = {pushes}
privacy.batch = {batch}
privacy.clip = {clip}
privacy.clip_min = {clip}
edges.count = {edges}
evaluation.at = "edges"
evaluation.epsilon = {epsilon}
evaluation.looks = {looks}
evaluation.held_out = 0.5
"""


@dataclass(frozen=True, slots=True)
class WanderingRun:
    """A run whose model does not settle. rate: of its steps."""

    data: str
    rate: float
    updates: int
    batch: int
    clip: float
    looks: int = 5
    edges: int = 5

    def run(self, seed: int) -> RunFile:
        """Return the run file."""
        text = _RUN.format(
            data=self.data, rate=self.rate, updates=self.updates, batch=self.batch,
            clip=self.clip, looks=self.looks, edges=self.edges, epsilon=EPSILON,
            pushes=self.updates // self.edges + 10,
        )  # fmt: skip
        return config.parse(text, self.data, seed=seed)


# γ·C is 8, where 1 would settle.
CASES = {"MNIST, steps too long": WanderingRun("mnist", 40.0, 200, 60, 0.2)}


def main() -> None:
    """Measure what is missing, and print."""
    torch.set_num_threads(1)
    root = Path(os.environ["TACIT_DATA"])
    results: list[dict[str, Any]] = []
    if OUT.exists():
        results = json.loads(OUT.read_text(encoding="utf-8"))
    measured = {(row["case"], row["seed"]) for row in results}
    for name, case in CASES.items():
        for seed in [int(word) for word in sys.argv[1:]] or range(1, 21):
            if (name, seed) in measured:
                continue
            results.append({"case": name, "seed": seed} | measure(case.run(seed), root))
            OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(results[-1]), flush=True)
    print(as_markdown(results))


def measure(run: RunFile, root: Path) -> dict[str, Any]:
    """Return each look's figures, and the looks that are chosen by noise and by public rows."""
    definition = run.define()
    simulation = Simulation(definition, root)
    models: dict[int, Tensor] = {}

    def observe(role: ServerRole) -> None:
        assert role.looks is not None
        if role.looks.number not in models and role.looks.model is not None:
            models[role.looks.number] = role.looks.model.clone()

    simulation.simulator.run(observe)
    looks, judging = simulation.role.looks, definition.judging
    assert looks is not None
    assert judging is not None
    test = published_only(definition.source).test(root)
    assert test is not None
    documents: list[dict[str, Any]] = []
    for look in looks.begun:
        noisy = figures(summed(judging, look)).get("accuracy")
        accuracy, _ = evaluate(simulation.model, models[look.number], test)
        documents.append({
            "look": look.number,
            "version": look.version,
            "noisy": None if noisy is None else noisy.rounded(),
            "public": round(accuracy, 5),
        })  # fmt: skip
    best = looks.best()
    return {
        "epsilon": _spent(simulation),
        "looks": documents,
        "by_looks": documents[-1]["look"] if best is None else best[0].number,
        "by_public": max(documents, key=lambda each: each["public"])["look"],
    }


def _spent(simulation: Simulation) -> float:
    """Return the most ε that an edge has spent on looks."""
    histories = (role.releaser.ledger.history() for role in simulation.simulator.edges.values())
    judged = ([row for row in rows if row.side == "held_out"] for rows in histories)
    return round(max(epsilon_pld(rows, 1e-5) for rows in judged), 4)


def lost(row: dict[str, Any], chosen: str = "by_looks") -> float:
    """Return how much worse the chosen model is than the public choice, on the test set.

    chosen: "last", or a key of the row.
    """
    accuracy = {each["look"]: each["public"] for each in row["looks"]}
    number = max(accuracy) if chosen == "last" else row[chosen]
    return float(max(accuracy.values()) - accuracy[number])


def as_markdown(results: list[dict[str, Any]]) -> str:
    """Return a row for each case: how often the choices are within half a point."""
    lines = [
        "| run | half an interval | from best to worst look | by looks, within 0.5 points "
        "| most lost | the last model, within 0.5 points |",
        "|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(row["case"] for row in results):
        rows = [row for row in results if row["case"] == case]
        noisy = [each["noisy"] for row in rows for each in row["looks"] if each["noisy"]]
        half = fmean(each["high"] - each["low"] for each in noisy) / 2
        reached = [[each["public"] for each in row["looks"]] for row in rows]
        apart = median(max(each) - min(each) for each in reached)
        within = sum(lost(row) <= WITHIN for row in rows)
        last = sum(lost(row, "last") <= WITHIN for row in rows)
        lines.append(
            f"| {case} | {100 * half:.1f} | {100 * apart:.1f} | {within} of {len(rows)} "
            f"| {100 * max(map(lost, rows)):.1f} | {last} of {len(rows)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
