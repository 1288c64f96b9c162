"""The data of a run, as its consumers use it: its public facts, each edge's rows, the test set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import torch

from tacit.datasets.benchmarks import load as published
from tacit.datasets.benchmarks.load import Dataset
from tacit.datasets.benchmarks.text import Text
from tacit.datasets.edge_rows import EdgeRows
from tacit.datasets.features import Features
from tacit.datasets.held_out import UnitSplit, divided
from tacit.datasets.partition import Method, all_shards
from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.known_data.owned import Owned


class PrivateRows(Protocol):
    """An edge's private rows: a part of a published data set, or of its own file."""

    def for_edge(self, classes: int) -> EdgeRows:
        """Return the rows, with the public row after them."""
        ...


@dataclass(frozen=True, slots=True)
class EdgePart:
    """An edge's rows, and the most that it may have: a public number, 0 where none is known.

    held_out: the rows that models are judged on; None: all rows are trained on.
    """

    rows: PrivateRows
    most: int
    held_out: PrivateRows | None = None


class Source(Protocol):
    """The data of a run. Everything but what `edge` gives is public."""

    @property
    def name(self) -> str:
        """The data's name in its ledger."""
        ...

    @property
    def unit(self) -> str:
        """The unit of privacy: "row", or the column that names a person."""
        ...

    @property
    def shape(self) -> tuple[tuple[int, ...], int]:
        """The shape of an example, and the numbers that a model gives for one: of each class.

        0: the target is a number.
        """
        ...

    @property
    def integers(self) -> int | None:
        """What the whole numbers of x are below; None: x is float32."""
        ...

    @property
    def target(self) -> Target:
        """What kind of target y is."""
        ...

    @property
    def row_view(self) -> str:
        """What rows without ids are known by when some are held out; "": units have ids."""
        ...

    def weight(self, number: int | None) -> float:
        """Return the share of edge `number` (None: an unknown one); an ordinary edge has 1."""
        ...

    def edge(
        self, number: int, root: Path | None, keep: Path, split: UnitSplit | None = None
    ) -> EdgePart:
        """Return the rows of edge `number`.

        root: of published data. keep: the edge's own folder. split: by which some rows are held
        out; None: none are. Raises ConfigError, DataError.
        """
        ...

    def owned(self, number: int) -> Owned | None:
        """Return the owner of edge `number`'s data; None: published, its ledger is the identity's.

        Raises ConfigError, DataError.
        """
        ...

    def test(self, root: Path | None) -> Dataset | None:
        """Return the public test set; None where there is none. Raises ConfigError, DataError."""
        ...

    def test_file(self) -> Owned | None:
        """Return what a user's own test file is told apart from private ones by.

        None: there is none. Raises ConfigError, DataError.
        """
        ...

    def remarks(self, only: int | None = None, *, quoting: bool = False) -> list[str]:
        """Return what the owner should know of the training rows before they cost anything.

        only: of this edge's file alone. quoting: whether a cell may be quoted, for the owner's
        screen. Raises OwnersError for rows that are nearly all of another schema; ConfigError,
        DataError.
        """
        ...

    def check(self, root: Path | None, only: int | None = None) -> None:
        """Raise ConfigError or DataError for a file that is not there, without reading it all.

        only: look at this edge's file alone.
        """
        ...

    def available(self, root: Path | None) -> bool:
        """Check whether its files are there; their contents are not read. Raises ConfigError."""
        ...


@dataclass(frozen=True, slots=True)
class Dealing:
    """The division of training rows: among `shards` edges, and `spare` ones that may join later."""

    shards: int
    method: Method
    seed: int
    alpha: float
    spare: int
    spare_weight: float

    def parts(self, by: torch.Tensor) -> list[torch.Tensor]:
        """Return the row numbers (int64, ascending) of every part, spare ones last.

        by: labels, or groups, (n,). Raises ConfigError as `all_shards`.
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


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A published data set by its name, and how it is divided among edges.

    It also has what a model sees of its pixels, or how its text is cut.
    """

    name: str
    features: Features
    text: Text
    dealing: Dealing

    @property
    def unit(self) -> str:
        """One record of the published file (docs/data.md)."""
        return "row"

    @property
    def shape(self) -> tuple[tuple[int, ...], int]:
        """The shape of an example, and how many classes there are."""
        return published.shape_of(self.name, self.features, self.text)

    @property
    def integers(self) -> int | None:
        """Of a text, the words of its vocabulary."""
        if published.is_text(self.name):
            return self.text.vocabulary
        return None

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of an example before `features`."""
        return published.shape_of(self.name, "none", self.text)[0]

    @property
    def target(self) -> Target:
        """Classes by their number, or the next word."""
        if published.is_text(self.name):
            return Target("text", tokens=self.text.vocabulary, length=self.text.sequence)
        return Target("classes", tuple(map(str, range(self.shape[1]))))

    @property
    def row_view(self) -> str:
        """What a model sees of a published row, which is what it is known by."""
        return f"{self.features}, {self.text}"

    def weight(self, number: int | None) -> float:
        """Return the part's weight: less than 1 for a spare part."""
        dealt = number is not None and number < self.dealing.shards
        if dealt or not self.dealing.spare:
            return 1.0
        return self.dealing.spare_weight

    def edge(
        self, number: int, root: Path | None, keep: Path, split: UnitSplit | None = None
    ) -> EdgePart:
        """Return the rows that edge `number` has, and how many they are.

        That number is public, as the file's division is. Raises ConfigError, DataError.
        """
        index = self.parts(root)[number]
        rows = published.load(self.name, "train", root, index, self.features, self.text)
        if split is None:
            return EdgePart(rows, len(index))
        trained, held_out = divided(rows, split)
        return EdgePart(trained, len(index), held_out)

    def owned(self, number: int) -> None:
        """Return None: published data is nobody's own."""

    def parts(self, root: Path | None) -> list[torch.Tensor]:
        """Return row numbers of every part of the training data, the spare ones last.

        Raises ConfigError, DataError.
        """
        return self.dealing.parts(_by(self.dealing.method == "natural", self.name, self.text, root))

    def train(self, root: Path | None) -> Dataset:
        """Return all training rows. Raises ConfigError, DataError."""
        return published.load(self.name, "train", root, None, self.features, self.text)

    def test(self, root: Path | None) -> Dataset:
        """Return all test rows. Raises ConfigError, DataError."""
        return published.load(self.name, "test", root, None, self.features, self.text)

    def test_file(self) -> None:
        """Return None: published data is nobody's own."""

    def remarks(self, only: int | None = None, *, quoting: bool = False) -> list[str]:
        """Return nothing: published rows are known."""
        return []

    def check(self, root: Path | None, only: int | None = None) -> None:
        """Raise ConfigError or DataError for a training file that is missing or another."""
        published.load_labels(self.name, "train", root)

    def available(self, root: Path | None) -> bool:
        """Check whether its files are in `root`. Raises ConfigError."""
        return published.available(self.name, root)


def published_only(source: Source) -> Benchmark:
    """Return `source`, which must be published data: who asks keeps no ledger.

    Raises ConfigError.
    """
    if not isinstance(source, Benchmark):
        raise ConfigError(
            f"data {source.name}: is somebody's own, and a simulation charges no ledger; "
            "use tacit run"
        )
    return source


@lru_cache(maxsize=2)  # a sweep deals the same again and again
def _by(natural: bool, name: str, text: Text, root: Path | None) -> torch.Tensor:
    """Return what rows are told apart by: groups or labels."""
    if natural:
        load = published.load_groups
    else:
        load = published.load_labels
    return load(name, "train", root, text)
