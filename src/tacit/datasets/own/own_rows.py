"""A user's own file of rows as the data of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from tacit.datasets.benchmarks.load import Dataset
from tacit.datasets.held_out import SplitHalf, UnitSplit
from tacit.datasets.own.featured import plain
from tacit.datasets.own.file_reading import located
from tacit.datasets.own.rows import Reader, UnitIds
from tacit.datasets.own.rows_file import Dealt, UnitRows, rows_of
from tacit.datasets.source import EdgePart
from tacit.datasets.target import Target
from tacit.errors import ConfigError, DataError
from tacit.known_data.owned import EDGE, Owned

MEMBERS = "members' rows"  # the name of all rows of a federation, of which each has its own file


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Own rows: one file that is dealt to `edges`, or a file for each, read by `reader`.

    owner: whose data it is, where the run file says so. folder: the run file's, which `train` and
    `test` are in. most: the most units that an edge may have. of_unit: how a unit's rows count.
    seed: of the dealing. apart_from: ledgers that are of other people. site: the one file or folder
    of a federation's member, which stands for `train` wherever it lies; None: they are in `folder`.
    """

    owner: str | None
    folder: Path
    train: str
    examples: str | None
    reader: Reader
    most: int
    of_unit: UnitRows
    edges: int
    seed: int
    apart_from: tuple[str, ...] = ()
    site: Path | None = None

    @property
    def name(self) -> str:
        """Its owner's, or the file's; at a federation's host, which sees no file, all members'."""
        if self.site is not None:
            return self.owner or self.site.name
        return self.owner or (MEMBERS if self.train == EDGE else self.train)

    @property
    def unit(self) -> str:
        """The column that names the unit, or "row"."""
        return self.reader.unit or "row"

    @property
    def shape(self) -> tuple[tuple[int, ...], int]:
        """The shape of a row, and the numbers that a model gives for one; 0: a number."""
        return self.reader.shape, self.target.outputs

    @property
    def integers(self) -> int | None:
        """What the whole numbers of x are below; None: x is float32."""
        return self.reader.integers

    @property
    def target(self) -> Target:
        """The kind of target that y is."""
        return self.reader.target

    @property
    def row_view(self) -> str:
        """What a row is known by without a unit: the schema that it is encoded by."""
        return "" if self.reader.unit else plain(self.reader).digest()

    def weight(self, number: int | None) -> float:
        """Return 1: all edges have an ordinary share."""
        return 1.0

    def path(self, number: int) -> Path:
        """Return the file that the rows of edge `number` are in. Raises ConfigError."""
        if self.site is not None:
            where = self.site.absolute()
            return located(where.name, where.parent, "--data", folders=self.reader.folders)
        return located(
            self.train.replace(EDGE, str(number)), self.folder, folders=self.reader.folders
        )

    @property
    def dealt(self) -> bool:
        """Whether one file is dealt to all edges."""
        return EDGE not in self.train

    def edge(
        self, number: int, root: Path | None, keep: Path, split: UnitSplit | None = None
    ) -> EdgePart:
        """Return the rows of edge `number`, mapped from fixed-width files in `keep`/rows.

        Those that are held out are in `keep`/held-out. Raises ConfigError, DataError.
        """
        if self.dealt:
            dealt = Dealt(number, self.edges, self.seed)
        else:
            dealt = Dealt()
        halves = (None,) if split is None else (SplitHalf(split, False), SplitHalf(split, True))
        rows, *held_out = (
            rows_of(
                self.path(number), self.reader, keep / folder, dealt, self.most, self.of_unit, half
            )
            for half, folder in zip(halves, ("rows", "held-out"), strict=False)
        )
        return EdgePart(rows, self.most, *held_out)

    def owned(self, number: int) -> Owned:
        """Return what the edge's ledger is found by. Raises ConfigError, DataError."""
        path = self.path(number)
        if self.site is None:
            train_file = (self.folder / self.train).resolve()
        else:
            train_file = path
        if self.dealt:
            dealing = f"by {self.unit} to {self.edges} edges, seed {self.seed}"
        else:
            dealing = ""
        if self.dealt and self.reader.unit is None:  # by what a row is encoded to
            dealing += f", like rows apart, columns {plain(self.reader).digest()[:16]}"
        return self._owned(self.owner or str(train_file), path, dealing)

    def _owned(self, name: str, path: Path, dealing: str) -> Owned:
        content = self.reader.content(path)
        reader = plain(self.reader)
        marks = partial(reader.marks, path)
        view = reader.digest()[:16]
        return Owned(name, content, self.unit, dealing, view, marks, self.apart_from, path.name)

    def test(self, root: Path | None) -> Dataset | None:
        """Return the public test set, read whole. Raises ConfigError, DataError."""
        if self.examples is None:
            return None
        x, y = together(self._test_path(self.examples), self.reader)
        return Dataset(x, y, self.target.codes, f"{self.name}/test")

    def test_file(self) -> Owned | None:
        """Return what the test file is told apart from private ones by; None: there is none.

        Raises ConfigError, DataError.
        """
        if self.examples is None:
            return None
        return self.public(self._test_path(self.examples))

    def public(self, path: Path) -> Owned:
        """Return what a public file is told apart from private ones by.

        Raises ConfigError, DataError.
        """
        return self._owned(str(path), path, "")

    def remarks(self, only: int | None = None, *, quoting: bool = False) -> list[str]:
        """Return what the owner should know of the training rows before they cost anything.

        only: of this edge's file alone. quoting: whether a cell may be quoted. Raises OwnersError
        where nearly all of a column does not fit the schema; DataError.
        """
        remarks = []
        for number in self._files(only):
            path = self.path(number)
            of_file = self.reader.remarks(path, quoting=quoting)
            remarks += [f"{path.name}: {remark}" for remark in of_file]
        return remarks

    def check(self, root: Path | None, only: int | None = None) -> None:
        """Raise ConfigError for a missing file, or a test file that is a training file.

        only: look at this edge's file alone.
        """
        files = [self.path(number) for number in self._files(only)]
        if self.examples is None:
            return
        test = self._test_path(self.examples)
        for path in files:
            if test.is_relative_to(path) or alike(self.reader, test, path):
                raise ConfigError(
                    f"data.test={self.examples!r}: is the training file {path.name}; "
                    "the test set is public, and of other people"
                )

    def _files(self, only: int | None) -> range:
        """Return the numbers of the edges whose files are all that there are, or of `only` one."""
        if self.dealt:
            return range(1)
        if only is None:
            return range(self.edges)
        return range(only, only + 1)

    def _test_path(self, name: str) -> Path:
        return located(name, self.folder, "data.test", folders=self.reader.folders)

    def available(self, root: Path | None) -> bool:
        """Return True: a missing file is reported when it is read."""
        return True


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a training file: units of each edge on average, and rows of the largest unit."""

    units: int
    largest: int


def counted(parts: Iterable[UnitIds], of_units: bool, edges: int, file: str) -> Counts:
    """Return counts of a file whose rows are of these units, divided among `edges` edges.

    of_units: False: each row is a unit by itself. They are private numbers: writing them into a
    run file makes them public. Raises DataError for no row.
    """
    counts: dict[bytes, int] = {}
    rows = 0
    for part in parts:
        rows += len(part)
        if of_units:
            for unit in part:
                counts[unit.tobytes()] = counts.get(unit.tobytes(), 0) + 1
    if not rows:
        raise DataError(f"{file}: has no rows")
    units = len(counts) if of_units else rows
    return Counts(max(1, units // edges), max(counts.values(), default=1))


def alike(reader: Reader, path: Path, other_path: Path) -> bool:
    """Check whether two files hold the same. Files of two sizes are not read. Raises DataError."""
    if path.is_file() and other_path.is_file() and path.stat().st_size != other_path.stat().st_size:
        return False
    return reader.content(path) == reader.content(other_path)


def together(path: Path, reader: Reader) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all x (n, *shape) and y (n,) of a file. Raises DataError."""
    parts = list(reader.read(path))
    if not parts:
        dtype = torch.float32 if reader.integers is None else torch.int64
        return torch.zeros(0, *reader.shape, dtype=dtype), torch.zeros(
            0, *reader.target.shape, dtype=torch.int64
        )
    x = np.concatenate([part.x for part in parts])
    return torch.from_numpy(x), torch.from_numpy(np.concatenate([part.y for part in parts]))
