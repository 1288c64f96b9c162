"""How a run's data is dealt: the rows of every edge, as its run file says."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from torch import Tensor

from tacit import datasets
from tacit.config import RunFile


def dealt(run: RunFile, root: Path | None) -> list[Tensor]:
    """Row numbers (int64, ascending) of every part of the training data, the spare ones last.

    Raises ConfigError, DataError.
    """
    data = run.data
    by = _by(data.partition == "natural", data.dataset, root, data.text)
    return datasets.all_shards(
        by, shards=run.edges.count, method=data.partition, seed=run.run.seed,
        alpha=data.alpha, spare=data.spare, spare_weight=data.spare_weight,
    )  # fmt: skip


@lru_cache(maxsize=2)  # a sweep deals the same again and again
def _by(natural: bool, dataset: str, root: Path | None, text: datasets.Text) -> Tensor:
    """What rows are told apart by: groups or labels."""
    return (datasets.load_groups if natural else datasets.load_labels)(dataset, "train", root, text)
