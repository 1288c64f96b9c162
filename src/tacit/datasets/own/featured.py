"""Features of a user's own rows: computed once, when they are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from tacit.datasets.features import Features, apply, shape_with, steps_of
from tacit.datasets.own.rows import EncodedRows, Inputs, Reader
from tacit.datasets.target import Target
from tacit.known_data.sketch import Marks


def with_features(reader: Reader, features: Features) -> Reader:
    """Return `reader`, which gives `features` of each row, if there are any."""
    if steps_of(features):
        return FeaturedReader(reader, features)
    return reader


def plain(reader: Reader) -> Reader:
    """Return `reader` without features: what rows are dealt by, and whose they are."""
    if isinstance(reader, FeaturedReader):
        return reader.reader
    return reader


def seen(reader: Reader, rows: EncodedRows) -> EncodedRows:
    """Return `rows` of `plain(reader)` as `reader` gives them."""
    if isinstance(reader, FeaturedReader):
        return reader.seen(rows)
    return rows


@dataclass(frozen=True)
class FeaturedReader:
    """Reads as `reader` does, and gives `features` of each row.

    Whose a row is, and where it is dealt to, does not change by them.
    """

    reader: Reader
    features: Features

    @property
    def unit(self) -> str | None:
        """The unit of `reader`."""
        return self.reader.unit

    @property
    def folders(self) -> bool:
        """Whether `reader` reads folders."""
        return self.reader.folders

    @property
    def integers(self) -> None:
        """None: features are float32."""

    @property
    def target(self) -> Target:
        """The target of `reader`."""
        return self.reader.target

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row's features. Raises ConfigError if they do not fit."""
        return shape_with(self.features, self.reader.shape)

    def digest(self) -> str:
        """Return SHA-256 of the schema and of the steps."""
        steps = [
            step if isinstance(step, str) else step.constants for step in steps_of(self.features)
        ]
        description = json.dumps([self.reader.digest(), steps])
        return hashlib.sha256(description.encode()).hexdigest()

    def content(self, path: Path) -> str:
        """Return the content that `reader` finds. Raises DataError."""
        return self.reader.content(path)

    def read(self, path: Path) -> Iterator[EncodedRows]:
        """Yield the rows, some thousand at a time. Raises ConfigError, DataError."""
        for rows in self.reader.read(path):
            yield replace(rows, x=self._with_features(rows.x))

    def seen(self, rows: EncodedRows) -> EncodedRows:
        """Return private `rows` of `reader` with their features; nan where a front raises.

        Raises ConfigError if the features do not fit.
        """
        return replace(rows, x=self._with_features(rows.x, private=True))

    def inputs(self, path: Path) -> Iterator[Inputs]:
        """Yield features of every row. Raises ConfigError, DataError."""
        return map(self._with_features, self.reader.inputs(path))

    def marks(self, path: Path) -> Iterator[Marks]:
        """Yield the marks of its rows before features, as `reader` does. Raises DataError."""
        return self.reader.marks(path)

    def remarks(self, path: Path, *, quoting: bool = False) -> Iterator[str]:
        """Yield what the owner should know of the rows, as `reader` does. Raises DataError."""
        return self.reader.remarks(path, quoting=quoting)

    def _with_features(self, x: Inputs, *, private: bool = False) -> Inputs:
        features: Inputs = apply(self.features, torch.from_numpy(x), private=private).numpy()
        return features
