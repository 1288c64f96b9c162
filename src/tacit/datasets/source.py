"""The published data set of a run: what its examples are made of, and how its rows are dealt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from tacit.datasets.benchmarks import load as published
from tacit.datasets.benchmarks.load import Dataset
from tacit.datasets.benchmarks.sources import Split
from tacit.datasets.benchmarks.text import Text
from tacit.datasets.features import Features
from tacit.datasets.partition import Method, all_shards


@dataclass(frozen=True, slots=True)
class Source:
    """A data set by its name, with what a model sees of its pixels, or how its text is cut."""

    name: str
    features: Features
    text: Text

    @property
    def train_size(self) -> int:
        """Training rows."""
        return published.train_size(self.name, self.text)

    @property
    def shape(self) -> tuple[tuple[int, ...], int]:
        """The shape of an example, and how many classes there are."""
        return published.shape_of(self.name, self.features, self.text)

    def load(self, split: Split, root: Path | None, rows: torch.Tensor | None = None) -> Dataset:
        """All `rows` of a split, or some. Raises ConfigError, DataError."""
        return published.load(self.name, split, root, rows, self.features, self.text)


@dataclass(frozen=True, slots=True)
class Dealing:
    """How training rows are dealt: to `shards` edges, and to `spare` ones that may join later."""

    shards: int
    method: Method
    seed: int
    alpha: float
    spare: int
    spare_weight: float

    def parts(self, by: torch.Tensor) -> list[torch.Tensor]:
        """Row numbers (int64, ascending) of every part, spare ones last; by: labels, or groups,
        (n,).

        Raises ConfigError as `all_shards`.
        """
        return all_shards(
            by,
            shards=self.shards,
            method=self.method,
            seed=self.seed,
            alpha=self.alpha,
            spare=self.spare,
            spare_weight=self.spare_weight,
        )
