"""The orderings that the papers of FedAsync and DP-PASGD claim, in mean over seeds, in the
simulator.

    python -m tacit_lab.studies.orderings [dp-pasgd] [fedasync] [staleness] [--seeds 5]
                                                                   (needs TACIT_DATA)

Writes out/orderings.json; docs/algorithms.md has the table. `fedasync`: SGD, FedAsync (staleness
drawn from 0 to 4) and FedAvg after the same number of gradients. `staleness`: FedAsync with
staleness from 0 to 16, constant against adaptive α. `dp-pasgd`: τ = 10 against τ = 1 for the same
resource and ε.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from tacit_services.testbed.simulated_run import Simulation

from tacit import config
from tacit.config import RunFile
from tacit.datasets.source import published_only
from tacit.models import evaluate
from tacit_lab.checkout import EXPERIMENTS

COST = (100.0, 1.0, 1000.0)  # c1 of an average, c2 of a local step, C_th: section 8.2 of DP-PASGD
GRADIENTS = 1500  # local steps in all, for each FedAsync curve


def changed(base: RunFile, **sections: dict[str, Any]) -> RunFile:
    """Return `base` with some values replaced, checked anew."""
    content = base.model_dump(exclude_unset=True)
    for section, values in sections.items():
        content[section] = content.get(section, {}) | values
    return RunFile.model_validate(content)


def result(run: RunFile, root: Path) -> tuple[float, float, float]:
    """Return (accuracy, test loss, largest ε spent) at the end of a simulated run."""
    torch.set_num_threads(1)
    simulation = Simulation(run.define(), root)
    simulation.simulator.run()
    role = simulation.role
    test = published_only(run.source).test(root)
    accuracy, loss = evaluate(simulation.model, role.params, test)
    plans = [edge.releaser.plan for edge in simulation.simulator.edges.values()]
    return accuracy, loss, max(plan.epsilon for plan in plans)


def dp_pasgd(root: Path, seeds: range) -> dict[str, Any]:
    """Compare τ = 10 with DP-SGD on the four data settings, C_th = 1000, ε = 10.

    Each spends what the resource allows.
    """
    c1, c2, limit = COST
    results: dict[str, Any] = {}
    for setting in ("adult1", "adult2", "vehicle1", "vehicle2"):
        base = config.load(EXPERIMENTS / f"dp-pasgd-{setting}.toml")
        results[setting] = {}
        for tau in (10, 1):
            rounds = int(limit // (c1 + c2 * tau))
            runs = [
                changed(
                    base,
                    algorithm={"tau": tau},
                    privacy={"pushes": rounds * tau},
                    run={"updates": rounds, "seed": seed},
                )
                for seed in seeds
            ]
            results[setting][f"tau={tau}"] = _summed(
                [result(run, root) for run in runs], setting, f"tau={tau}"
            )
    return results


def fedasync(root: Path, seeds: range) -> dict[str, Any]:
    """Compare SGD, FedAsync (staleness up to 4) and FedAvg after the same number of gradients."""
    results = {}
    for name, most in (("sgd", None), ("fedasync", 4), ("fedavg", None)):
        base = config.load(EXPERIMENTS / f"{name}-cifar10-cnn.toml")
        steps = 10
        per_version = steps * base.algorithm.traits(base.edges.count).uploads
        section = {"steps_min": steps, "steps_max": steps}
        runs = [
            changed(
                base,
                algorithm=section,
                network={"staleness": most},
                run={"updates": GRADIENTS // per_version, "seed": seed},
            )
            for seed in seeds
        ]
        results[name] = _summed([result(run, root) for run in runs], "cifar10", name)
    return results


def staleness(root: Path, seeds: range) -> dict[str, Any]:
    """Measure FedAsync at staleness up to 16: constant α, polynomial, hinge."""
    results = {}
    base = config.load(EXPERIMENTS / "fedasync-cifar10-cnn.toml")
    sections: dict[str, dict[str, Any]] = {
        "constant": {"staleness": "constant"},
        "polynomial": {"staleness": "polynomial", "a": 0.5},
        "hinge": {"staleness": "hinge", "a": 10.0, "b": 4},
    }
    for name, section in sections.items():
        steps: dict[str, Any] = {"steps_min": 10, "steps_max": 10, "mixing": 0.9}
        runs = [
            changed(
                base,
                algorithm=section | steps,
                network={"staleness": 16},
                run={"updates": GRADIENTS // 10, "seed": seed},
            )
            for seed in seeds
        ]
        results[name] = _summed([result(run, root) for run in runs], "staleness 16", name)
    return results


def _summed(rows: list[tuple[float, float, float]], *names: str) -> dict[str, Any]:
    accuracy = [row[0] for row in rows]
    loss = [row[1] for row in rows]
    spread = stdev(accuracy) if len(accuracy) > 1 else 0.0
    print(
        f"{' '.join(names):28} accuracy {100 * fmean(accuracy):6.2f} ± {100 * spread:.2f} loss "
        f"{fmean(loss):.4f}",
        flush=True,
    )
    return {"accuracy": accuracy, "loss": loss, "epsilon": rows[0][2]}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.orderings")
    parser.add_argument("what", nargs="*", default=["dp-pasgd", "fedasync", "staleness"])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    root = Path(os.environ.get("TACIT_DATA", "../shared/data"))
    out = Path("out/orderings.json")
    parts = {"dp-pasgd": dp_pasgd, "fedasync": fedasync, "staleness": staleness}
    out.parent.mkdir(exist_ok=True)
    if out.exists():
        results = json.loads(out.read_text())
    else:
        results = {}
    for what in arguments.what:
        results[what] = parts[what](root, range(1, arguments.seeds + 1))
        out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
