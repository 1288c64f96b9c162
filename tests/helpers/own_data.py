"""Tables of real rows as a user has them, and run files for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyarrow import csv, parquet

from tacit import datasets
from tacit.datasets import Dataset

CREDIT_LOWS = (0.0, 0.5, 0.0, 0.0, 0.0, *[-0.25] * 6, *[-1.0] * 6, *[0.0] * 6)
CREDIT_HIGHS = (1.2, 1.0, 1.5, 1.0, 1.0, *[0.9] * 6, *[1.0] * 12)
NETS = """
from torch import nn


def net(width, hidden, outputs=2):
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
"""
RUN = """
[run]
name = "own"
updates = {updates}
[data]
{data}
[data.columns]
{columns}
[model]
{model}
[algorithm]
name = "fedasync"
learning_rate = {rate}
steps_min = 1
[privacy]
epsilon = 4.0
pushes = {pushes}
batch = {batch}
clip = 0.5
[edges]
count = {edges}
[evaluation]
every = 100
"""


def written(path: Path, columns: dict[str, np.ndarray]) -> Path:
    """Write `columns` as a CSV or a Parquet file, by the name of the file, and return its path."""
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    csv.write_csv(table, path) if path.suffix == ".csv" else parquet.write_table(table, path)
    return path


def credit(folder: Path, root: Path) -> None:
    """Write train.csv and test.csv of the credit data."""
    for split in ("train", "test"):
        rows = datasets.load("credit-default", "train" if split == "train" else "test", root)
        numbers = {f"c{at}": rows.x[:, at].numpy() for at in range(rows.x.shape[1])}
        outcome = np.where(rows.y.numpy() == 1, "yes", "no")
        written(folder / f"{split}.csv", {**numbers, "default": outcome})


def credit_columns() -> str:
    """Return [data.columns] of the credit data."""
    pairs = zip(CREDIT_LOWS, CREDIT_HIGHS, strict=True)
    numbers = [f"c{at} = {{ low = {low}, high = {high} }}" for at, (low, high) in enumerate(pairs)]
    return "\n".join([*numbers, 'default = { values = ["no", "yes"] }'])


def credit_run(folder: Path, updates: int = 500, pushes: int = 100, edges: int = 5) -> Path:
    """Write a run file for `credit`, with an own module beside it, and return its path."""
    (folder / "nets.py").write_text(NETS)
    model = 'name = "python"\nentry = "nets:net"\narguments = { width = 23, hidden = 16 }'
    data = 'kind = "table"\ntrain = "train.csv"\ntest = "test.csv"\ntarget = "default"\nrows = 4800'
    text = RUN.format(
        updates=updates,
        data=data,
        columns=credit_columns(),
        model=model,
        rate=4.0,
        pushes=pushes,
        batch=400,
        edges=edges,
    )
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def auc(scores: torch.Tensor, y: torch.Tensor) -> float:
    """Return the probability that a positive scores above a negative, ties counted as a half."""
    positive, negative = scores[y == 1], scores[y == 0]
    above = torch.searchsorted(negative.sort().values, positive)
    not_below = torch.searchsorted(negative.sort().values, positive, right=True)
    return float((above + not_below).double().sum() / 2 / len(positive) / len(negative))


def margin(outputs: torch.Tensor) -> torch.Tensor:
    """Return the margin by which a classifier of two prefers the second class."""
    return outputs[:, 1] - outputs[:, 0]


def table_of(path: Path) -> Dataset:
    """Return the test rows of the run file at `path`."""
    from tacit import config

    dataset = config.load(path).source.test(None)
    assert dataset is not None
    return dataset
