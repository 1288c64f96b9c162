"""Own columns: parties that hold different columns of the same people, and who holds the labels.

A person is one row of each file, under an id in its key column. Nothing is said here of who is in
which file: `tacit.datasets.alignment` joins rows by a keyed hash of these ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tacit.datasets.benchmarks.load import Dataset
from tacit.datasets.held_out import UnitSplit
from tacit.datasets.own.file_reading import located
from tacit.datasets.own.rows import each_its_own, hashed
from tacit.datasets.own.schema import Category, Column, Number
from tacit.datasets.own.unit_ids import unit_text
from tacit.datasets.source import EdgePart
from tacit.datasets.target import Target
from tacit.errors import DataError
from tacit.known_data.owned import Owned
from tacit.known_data.sketch import Marks

if TYPE_CHECKING:
    from tacit.datasets.own.table import TableReader


@dataclass(frozen=True, slots=True, eq=False)
class KeyedPeople:
    """People of one holder: their ids, and x (n, places) float32. The first `private` are private.

    The others are of its test file, which is public.
    """

    ids: list[str]
    x: Tensor
    private: int


@dataclass(frozen=True)
class KeyedFiles:
    """The two files of one holder of columns: of people to train on, and of public test people.

    name: the holder's. key: the column with ids. train, test: files in `folder`. reader: of their
    columns, without the key.
    """

    name: str
    key: str
    train: str
    test: str
    folder: Path
    reader: TableReader

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that are read."""
        return self.reader.schema.features

    @cached_property
    def affine(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the public (gain, offset) of each place: gain·x - offset is near 0, about 1 long.

        A number between bounds alone, which is 0 to 1, becomes -1 to 1.
        """
        gains: list[float] = []
        offsets: list[float] = []
        for column in self.features:
            between = isinstance(column, Number) and column.center is None
            gains += [2.0 if between else 1.0] * column.width
            offsets += [1.0 if between else 0.0] * column.width
        return tuple(gains), tuple(offsets)

    def path(self, file: str) -> Path:
        """Return where `file` lies. Raises ConfigError where it is not there."""
        return located(file, self.folder, f"data of {self.name}")

    def people(self) -> KeyedPeople:
        """Return all people of both files, those of the test file last.

        Raises DataError for an id that occurs twice, also once in each file: who is in a public
        file has no privacy to protect. Raises ConfigError for a file that is not there.
        """
        train, test = self.path(self.train), self.path(self.test)
        of_train, of_test = self._ids(train), self._ids(test)
        ids = of_train + of_test
        self._once(of_train, train.name)
        self._once(of_test, test.name)
        self._once(ids, f"{train.name} and {test.name}")
        if not of_train or not of_test:
            raise DataError(f"{train.name} and {test.name}: one of them has no rows")
        x = np.concatenate([*self.reader.inputs(train), *self.reader.inputs(test)])
        return KeyedPeople(ids, torch.from_numpy(x), len(of_train))

    def owned(self) -> Owned:
        """Return what the ledger of the private file is found by. Raises ConfigError, DataError."""
        path = self.path(self.train)
        view = self.reader.digest()[:16]
        content = self.reader.content(path)
        marks = partial(self._marks, path)
        return Owned(self.name, content, self.key, "", view, marks, (), path.name)

    def remarks(self, path: Path) -> Iterator[str]:
        """Yield what the holder should know of a file's cells. Raises DataError."""
        yield from self.reader.strangers(path)

    def _ids(self, path: Path) -> list[str]:
        where = f"{path.name}: column {self.key!r}"
        cells = self.reader.named(path, self.key)
        return [unit_text(cell, where, row) for row, cell in enumerate(cells)]

    def _once(self, ids: list[str], files: str) -> None:
        more = len(ids) - len(set(ids))
        if more:
            raise DataError(
                f"{files}: column {self.key!r}: {more} rows repeat an id; a person is one row at "
                f"{self.name}: join or leave out such rows first"
            )

    def _marks(self, path: Path) -> Iterator[Marks]:
        x = np.concatenate(list(self.reader.inputs(path)))
        # With the holder's name: the same people's other columns, elsewhere, have another ledger.
        units = hashed(f"{self.name}\0{text}".encode() for text in self._ids(path))
        yield Marks(each_its_own(x, np.zeros(len(x), np.int64)), units)


@dataclass(frozen=True)
class OwnColumns:
    """The data of a vertical run on own columns.

    labels: of the holder of labels, whose only column is the target. parties: whose columns are
    learnt from, in the order of the run's workers.
    """

    labels: KeyedFiles
    parties: tuple[KeyedFiles, ...]

    @property
    def name(self) -> str:
        """The holder of labels."""
        return self.labels.name

    @property
    def unit(self) -> str:
        """The column that names a person where labels are."""
        return self.labels.key

    @property
    def shape(self) -> tuple[tuple[int, ...], int]:
        """The most places of a party's row, and how many classes there are."""
        return (max(self.places),), self.target.outputs

    @property
    def places(self) -> tuple[int, ...]:
        """The places of each party's row."""
        return tuple(party.reader.shape[0] for party in self.parties)

    @property
    def integers(self) -> None:
        """Return None: x is float32."""
        return

    @property
    def target(self) -> Target:
        """The classes."""
        (column,) = self.labels.features
        assert isinstance(column, Category)
        return Target("classes", column.values)

    @property
    def row_view(self) -> str:
        """Return "": people have ids."""
        return ""

    def weight(self, number: int | None) -> float:
        """Return 1: a party's share of the work is as large as another's."""
        return 1.0

    def labelled(self) -> tuple[KeyedPeople, Tensor]:
        """Return the people with labels, and their classes int64 (n,). Raises DataError."""
        people = self.labels.people()
        classes = people.x.argmax(1)
        unknown = int((classes >= len(self.target.names)).sum())
        if unknown:
            raise DataError(
                f"{self.labels.train} and {self.labels.test}: {unknown} rows have none of the "
                f"target's values, {', '.join(self.target.names)}; mend or leave out those rows"
            )
        return people, classes

    def edge(
        self, number: int, root: Path | None, keep: Path, split: UnitSplit | None = None
    ) -> EdgePart:
        """Return the private rows of party `number`, all of class 0. Raises as `people`."""
        people = self.parties[number].people()
        y = torch.zeros(people.private, dtype=torch.int64)
        classes = self.target.outputs
        rows = Dataset(people.x[: people.private], y, classes, self.parties[number].name)
        return EdgePart(rows, people.private)

    def owned(self, number: int) -> Owned:
        """Return what the ledger of party `number` is found by. Raises ConfigError, DataError."""
        return self.parties[number].owned()

    def test(self, root: Path | None) -> Dataset:
        """Return the labels of the test people, without columns. Raises ConfigError, DataError."""
        people, classes = self.labelled()
        y = classes[people.private :]
        return Dataset(torch.zeros(len(y), *self.shape[0]), y, self.target.outputs, self.name)

    def test_file(self) -> None:
        """Return None: `KeyedFiles.people` compares each holder's ids itself."""

    def remarks(self, only: int | None = None, *, quoting: bool = False) -> list[str]:
        """Return what each holder of a file should know of it.

        Where all files are here, also how many people a party lacks. Raises DataError where it
        lacks all of them.
        """
        chosen = self.parties if only is None else self.parties[only : only + 1]
        remarks = [
            f"{party.train}: {remark}"
            for party in chosen
            for remark in party.remarks(party.path(party.train))
        ]
        return remarks if only is not None else [*remarks, *self._lacking()]

    def _lacking(self) -> Iterator[str]:
        labelled = self.labels.people()
        expected = set(labelled.ids[: labelled.private])
        for party in self.parties:
            people = party.people()
            lacking = len(expected - set(people.ids[: people.private]))
            if lacking == len(expected):
                raise DataError(
                    f"{party.train}: column {party.key!r}: none of the {len(expected)} people of "
                    f"{self.labels.train} is there; is it the column with their ids?"
                )
            if lacking:
                yield (
                    f"{party.train}: lacks {lacking} of the {len(expected)} people of "
                    f"{self.labels.train}, who are blanks there"
                )

    def check(self, root: Path | None, only: int | None = None) -> None:
        """Raise ConfigError for a file that is not there; of one party's files alone if `only`."""
        chosen = (self.labels, *self.parties) if only is None else self.parties[only : only + 1]
        for holder in chosen:
            for file in (holder.train, holder.test):
                holder.path(file)

    def available(self, root: Path | None) -> bool:
        """Return True: a missing file is reported when it is read."""
        return True
