"""One edge ten times slower, over a real broker: time to the same accuracy, FedAvg's over
FedAsync's, as ratios.

    python -m tacit_lab.studies.stragglers [--accuracy 0.35]

Needs TACIT_DATA and an idle machine; about ten minutes.

Runs the CIFAR-10 experiments of FedAsync (polynomial, hinge), FedBuff and FedAvg, one after
another. Each has ten edge processes as in `tacit run`, the last edge slowed down. Writes
out/stragglers.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from pathlib import Path

from tacit_lab.checkout import EXPERIMENTS
from tacit_lab.papers.figures.testbed_figures import train
from tacit_lab.papers.round_cost import as_toml

RUNS = (
    "fedasync-cifar10-cnn",
    "fedasync-cifar10-cnn-hinge",
    "fedbuff-cifar10-cnn",
    "fedavg-cifar10-cnn",
)
SLOW = 10.0


def slowed(name: str, folder: Path) -> Path:
    """Return the experiment with its last edge slowed down, as a file of its own."""
    content = tomllib.loads((EXPERIMENTS / f"{name}.toml").read_text(encoding="utf-8"))
    content["edges"]["slowdown"] = [1.0] * (content["edges"]["count"] - 1) + [SLOW]
    file = folder / f"{name}.toml"
    file.write_text(as_toml(content), encoding="utf-8")
    return file


def seconds(out: Path, accuracy: float) -> float | None:
    """Return seconds of training until an evaluation first showed `accuracy`; None: never."""
    points = [
        json.loads(line)
        for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return next((point["seconds"] for point in points if point["accuracy"] >= accuracy), None)


def measure(name: str, out: Path, accuracy: float) -> dict[str, float | None]:
    """Run one experiment to its end."""
    with tempfile.TemporaryDirectory() as folder:
        summary = train(slowed(name, Path(folder)), out / name)
    return {
        "seconds_to_accuracy": seconds(out / name, accuracy),
        "duration_s": summary["duration_s"],
        "test_accuracy": summary["test_accuracy"],
        "applied": summary["applied"],
        "staleness_mean": summary["staleness"]["mean"],
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.stragglers")
    parser.add_argument("--accuracy", type=float, default=0.35)
    parser.add_argument("--out", type=Path, default=Path("out/stragglers"))
    arguments = parser.parse_args()
    results = {}
    for name in RUNS:
        results[name] = measure(name, arguments.out, arguments.accuracy)
        print(name, results[name], flush=True)
    slow = results["fedavg-cifar10-cnn"]["seconds_to_accuracy"]
    for name in RUNS[:-1]:
        quick = results[name]["seconds_to_accuracy"]
        if slow and quick:
            print(
                f"FedAvg / {name}: {slow / quick:.2f} times as long to "
                f"{100 * arguments.accuracy:g} %"
            )
    (arguments.out / "stragglers.json").write_text(
        json.dumps(results, indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
