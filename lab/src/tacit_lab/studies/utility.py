"""What privacy costs: test accuracy on MNIST over ε. Real roles in this process, one push after the
other.

`python -m tacit_lab.studies.utility [seed ...]` runs what out/utility.json does not have yet and
prints the table of docs/privacy.md. It takes half an hour on one idle core, and may be ended and
started again at any time.

K = 5 edges push in turn, so every update but the first four has staleness 4. Each edge pushes as
often as its budget is calibrated for. The networks get UPDATES updates, half of what their
experiment files say. Noise and batches come from seeded streams: a repeated run gives the same
bits, and is no release.
"""

from __future__ import annotations

import json
import os
import sys
import time
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit import datasets
from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.mapa.mapa import MapaServer
from tacit.config import RunFile
from tacit.datasets import Dataset, Features
from tacit.datasets.benchmarks.sources import Split
from tacit.datasets.source import published_only
from tacit.models import evaluate
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Releaser
from tacit.protocol.messages import SERVER, GlobalModel, Hello, Push, Update
from tacit_lab.checkout import EXPERIMENTS, ROOT

OUT = Path("out") / "utility.json"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
UPDATES = 2500
# MAPA that never leaves its second stage's C.
FIXED = {"privacy": {"mechanism": "gaussian", "clip": 0.1, "clip_min": 0.1}}
GAUSSIAN = {"privacy": {"mechanism": "gaussian"}}
DISCRETE = {"privacy": {"mechanism": "discrete_gaussian"}}
# What is run: name -> experiment file, what differs from it, and at which ε.
CASES: dict[str, tuple[str, dict[str, Any], tuple[float, ...]]] = {
    "mapa": ("mapa-mnist-cnn", GAUSSIAN, EPSILONS),
    "audp": ("audp-mnist-cnn", GAUSSIAN, EPSILONS),
    "fixed clip": ("mapa-mnist-cnn", FIXED, EPSILONS),
    "mapa, discrete_gaussian": ("mapa-mnist-cnn", DISCRETE, (2.0,)),
    "mapa, scattering": ("mapa-mnist-scattering", {}, (2.0,)),
    "mapa, scattering at 1": ("mapa-mnist-scattering-eps1", {}, (1.0,)),
}


def main() -> None:
    """Run what is missing, for the seeds on the command line (default: 1), and print the table."""
    torch.set_num_threads(1)
    results: list[dict[str, Any]] = (
        json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else []
    )
    measured = {(row["case"], row["budget"], row["seed"]) for row in results}
    for seed in [int(word) for word in sys.argv[1:]] or [1]:
        for case, epsilon in _order():
            if (case, epsilon, seed) in measured:
                continue
            row = measure(case, epsilon, seed)
            results.append(row)
            OUT.parent.mkdir(exist_ok=True)
            OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(row), flush=True)
    print(table(results))


def _order() -> list[tuple[str, float]]:
    """Return the cases with ε = 2 first: that row is compared most."""
    pairs = [(case, epsilon) for case, (_, _, epsilons) in CASES.items() for epsilon in epsilons]
    return sorted(pairs, key=lambda pair: abs(pair[1] - 2.0))


def measure(case: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Measure one run to its end.

    Returns accuracy on the whole test set, the ε that the pushes cost, and what drove it.
    """
    file, changes, _ = CASES[case]
    run = run_file(file, changes, epsilon, seed)
    started = time.monotonic()
    server = train(run, seed)
    seconds = time.monotonic() - started
    test = _data(run.source.name, "test", published_only(run.source).features)
    accuracy, loss = evaluate(run.build_model(), server.params, test)
    plan = run.plan(0)
    pushes = max(record.updates for record in server.edges.values())
    spent = epsilon_pld(
        [Spend(plan.sampling_rate, plan.noise_multiplier, pushes, plan.mechanism)], plan.delta
    )
    return {
        "case": case,
        "budget": epsilon,
        "seed": seed,
        "accuracy": round(100 * accuracy, 2),
        "loss": round(loss, 4),
        "epsilon": round(spent, 4),
        "noise_multiplier": round(plan.noise_multiplier, 3),
        "pushes": pushes,
        "batch": plan.batch,
        "updates": server.version,
        "clip": server.clip,
        "stage": server.stage,
        "seconds": round(seconds, 1),
    }


def run_file(file: str, changes: dict[str, Any], epsilon: float, seed: int) -> RunFile:
    """Return the experiment with `changes`, calibrated to the number of pushes.

    The last push of every edge spends the last of its ε.
    """
    content = tomllib.loads((EXPERIMENTS / f"{file}.toml").read_text(encoding="utf-8"))
    edges = content.get("edges", {}).get("count", 5)
    updates = min(UPDATES, content["run"]["updates"])
    defaults = {
        "run": {"seed": seed, "updates": updates},
        "privacy": {"epsilon": epsilon, "pushes": -(-updates // edges)},
    }
    for part in (defaults, changes):
        for section, keys in part.items():
            content[section] = content.get(section, {}) | keys
    return RunFile.model_validate(content)


def train(run: RunFile, seed: int) -> MapaServer:
    """Train the run in this process.

    The edges take turns, each on the model that answered its last push.
    """
    server = MapaServer(run.define(), run.build_model())
    edges = [_edge(run, number, seed) for number in range(run.edges.count)]
    models: dict[str, GlobalModel] = {}
    for edge in edges:
        (hello,) = edge.start()
        assert isinstance(hello.message, Hello)
        models |= _models(server, hello.message)
    while not server.halted:
        for edge in edges:
            (out,) = edge.on_message(models[edge.edge])
            assert out.to == SERVER
            assert isinstance(out.message, Push)
            models |= _models(server, received(out.message))
            if server.halted:
                break
    return server


def received(push: Push) -> Update:
    """Return what the server makes of a push: on the wire it is the vector and its scale."""
    released = push.released
    gradient = released.vector.to(torch.float32) * released.scale
    return Update(
        push.edge, push.base_version, gradient, released.clip, released.spent, released.charged
    )


def _models(server: MapaServer, message: Hello | Update) -> dict[str, GlobalModel]:
    replies = server.on_message(message)
    return {reply.to: reply.message for reply in replies if isinstance(reply.message, GlobalModel)}


class _Unpadded(Slots):
    """A sum without the rows that only hide a batch's size from a clock: a third of the work."""

    def clipped(self, params: Tensor, clip: float, index: Tensor, mask: Tensor) -> Clipped:
        return super().clipped(params, clip, index[mask], mask[mask])


def _edge(run: RunFile, number: int, seed: int) -> EdgeRole:
    data = published_only(run.source)
    rows = data.parts(_root())[number]
    part = _data(data.name, "train", data.features).take(rows)
    releaser = Releaser(
        run.plan(number, len(rows)), Ledger(":memory:", data.name), Random(1000 * seed + number)
    )
    ways = Ways(slots=_Unpadded, outer=_Unpadded)
    name = f"edge-{number}"
    model = run.build_model()
    return registry.edge(run.define(), name, part, model, releaser, ways=ways)


@cache
def _data(name: str, split: Split, features: Features) -> Dataset:
    return datasets.load(name, split, _root(), None, features)


def _root() -> Path:
    return Path(os.environ.get("TACIT_DATA") or ROOT.parent / "shared" / "data")


def table(results: list[dict[str, Any]]) -> str:
    """Return a row of Markdown for each case, with a column for each ε.

    It shows accuracy in per cent, the mean over the seeds.
    """
    lines = [
        "| | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---" * (len(EPSILONS) + 1) + "|",
    ]
    for case in CASES:
        cells = []
        for epsilon in EPSILONS:
            accuracies = [
                row["accuracy"]
                for row in results
                if (row["case"], row["budget"]) == (case, epsilon)
            ]
            cells.append(f"{sum(accuracies) / len(accuracies):.2f}" if accuracies else "")
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
