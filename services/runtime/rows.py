"""How a run's data is dealt: the rows of every edge, as its run file says."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from tacit import datasets
from tacit.config import RunFile


def dealt(run: RunFile, root: Path | None) -> list[Tensor]:
    """Row numbers (int64, ascending) of every part of the training data, the spare ones last.

    Raises ConfigError, DataError.
    """
    data = run.data
    by = datasets.load_groups if data.partition == "natural" else datasets.load_labels
    return datasets.all_shards(
        by(data.dataset, "train", root, data.text), shards=run.edges.count, method=data.partition, seed=run.run.seed,
        alpha=data.alpha, spare=data.spare, spare_weight=data.spare_weight,
    )  # fmt: skip
