"""One's own folder of pictures against the published data set that they are of: Fashion-MNIST as
70,000 PNGs, with an own convolutional network. `python -m tacit_lab.studies.own_pictures --data
DATA` writes out/own-pictures.json.

Both runs are `tacit run`, five edges as processes over a broker, with the same module, ε and seeds.
Only [data] differs, and so does who gets which rows: a published set is dealt by numbers, own files
by the hash of their pixels. Expected: means that differ by no more than seeds do. Half an hour on
two cores, of which a third is reading pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from PIL import Image

from tacit import datasets
from tacit_lab.checkout import ROOT
from tacit_lab.papers.figures.testbed_figures import train

# of an edge
NAME = "fashion-mnist"
CLASSES = 10
ROWS = 12_000
NETS = '''
from torch import nn


class Net(nn.Sequential):
    """Two convolutions with group norm, and a dense layer: scores (B, 10) of (B, 1, 28, 28)."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 8, 5), nn.GroupNorm(4, 8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 5), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(256, 10),
        )
'''
RUN = """
[run]
name = "{name}"
updates = {updates}
[data]
{data}
[model]
name = "python"
entry = "nets:Net"
[algorithm]
name = "fedasync"
learning_rate = 1.0
steps_min = 1
[privacy]
epsilon = 4.0
pushes = {pushes}
batch = 256
clip = 0.5
[edges]
count = 5
[evaluation]
every = {updates}
samples = 10000
"""
DATA = {
    "benchmark": f'dataset = "{NAME}"',
    "pictures": f"""kind = "images"
train = "train"
test = "test"
classes = {[str(number) for number in range(CLASSES)]}
size = 28
channels = 1
rows = {ROWS}""",
}


def written(folder: Path, data: Path, updates: int) -> dict[str, Path]:
    """Return the module, the PNGs in a folder for each class, and both run files."""
    (folder / "nets.py").write_text(NETS, encoding="utf-8")
    for split in ("train", "test"):
        rows = datasets.load(NAME, split, data)
        for number in range(CLASSES):
            (folder / split / str(number)).mkdir(parents=True)
        pixels = (rows.x[:, 0] * 255).round().to(torch.uint8).numpy()
        for number, (picture, label) in enumerate(zip(pixels, rows.y.tolist(), strict=True)):
            Image.fromarray(picture).save(folder / split / str(label) / f"{number}.png")
    files = {kind: folder / f"{kind}.toml" for kind in DATA}
    for kind, file in files.items():
        text = RUN.format(name=kind, data=DATA[kind], updates=updates, pushes=updates // 5 + 1)
        file.write_text(text, encoding="utf-8")
    return files


def measured(folder: Path, files: dict[str, Path], seeds: int) -> dict[str, list[dict[str, Any]]]:
    """Return accuracy and ε of each kind, seed by seed. Each run has fresh ledgers."""
    results: dict[str, list[dict[str, Any]]] = {kind: [] for kind in files}
    for seed in range(1, seeds + 1):
        for kind, file in files.items():
            os.environ["XDG_DATA_HOME"] = str(folder / f"home-{kind}-{seed}")
            summary = train(file, folder / f"{kind}-{seed}", "--seed", str(seed))
            accuracy = summary["test_accuracy"]
            epsilon = summary["privacy"]["epsilon"]
            results[kind].append({"accuracy": accuracy, "epsilon": epsilon})
            print(f"seed {seed}, {kind}: {100 * accuracy:.2f} % at ε = {epsilon:.3f}", flush=True)
    return results


def verdict(results: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Return means, how far they are apart, and how far the seeds of one kind are, in per cent."""
    accuracies = {kind: [100 * row["accuracy"] for row in rows] for kind, rows in results.items()}
    means = {kind: round(mean(rows), 2) for kind, rows in accuracies.items()}
    spread = max(max(rows) - min(rows) for rows in accuracies.values())
    apart = abs(means["benchmark"] - means["pictures"])
    return means | {"apart": round(apart, 2), "spread_of_seeds": round(spread, 2)}


def main() -> None:
    """Draw the pictures, train both ways, print and write what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.own_pictures")
    parser.add_argument("--data", type=Path, required=True, help="folder of the published data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "own-pictures.json")
    arguments = parser.parse_args()
    os.environ["TACIT_DATA"] = str(arguments.data.resolve())
    with tempfile.TemporaryDirectory() as name:
        files = written(Path(name), arguments.data, arguments.updates)
        results = measured(Path(name), files, arguments.seeds)
    summary = verdict(results)
    print(json.dumps(summary))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results | summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
