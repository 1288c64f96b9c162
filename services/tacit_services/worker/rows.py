"""How a run's data is dealt: the rows of every edge, as its definition says."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from torch import Tensor

from tacit import datasets
from tacit.datasets import Dealing, Source


def dealt(source: Source, dealing: Dealing, root: Path | None) -> list[Tensor]:
    """Row numbers (int64, ascending) of every part of the training data, the spare ones last.

    Raises ConfigError, DataError.
    """
    return dealing.parts(_by(dealing.method == "natural", source, root))


@lru_cache(maxsize=2)  # a sweep deals the same again and again
def _by(natural: bool, source: Source, root: Path | None) -> Tensor:
    """What rows are told apart by: groups or labels."""
    load = datasets.load_groups if natural else datasets.load_labels
    return load(source.name, "train", root, source.text)
