"""Rows of a CSV or Parquet table, by its public schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from tacit.datasets.own.file_reading import digest
from tacit.datasets.own.row_marks import marks_of
from tacit.datasets.own.rows import EncodedRows, Floats
from tacit.datasets.own.schema import Number, TableSchema
from tacit.datasets.own.table_encoding import encode, inputs_of
from tacit.datasets.own.table_file import batches
from tacit.datasets.sketch import Marks
from tacit.datasets.target import Target

_BLOCK_BYTES = 1 << 26  # the most bytes of x at a time


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads tables of `schema`."""

    schema: TableSchema

    folders: ClassVar[bool] = False

    @property
    def unit(self) -> str | None:
        """The unit column."""
        return self.schema.unit

    @property
    def shape(self) -> tuple[int, ...]:
        """The width of a row."""
        return (self.schema.width,)

    @property
    def target(self) -> Target:
        """The kind of target that the target column is."""
        column = self.schema.target
        if isinstance(column, Number):
            return Target("number", low=column.low, span=column.high - column.low)
        return Target("classes", column.values)

    def digest(self) -> str:
        """Return SHA-256 of the schema."""
        return self.schema.digest().hex()

    def content(self, path: Path) -> str:
        """Return SHA-256 of the file. Raises DataError."""
        return digest(path)

    def read(self, path: Path) -> Iterator[EncodedRows]:
        """Yield the table's rows, a few thousand at a time. Raises DataError."""
        first = 0
        for batch in self._pieces(path, self.schema.names):
            yield encode(self.schema, batch, first)
            first += batch.num_rows

    def inputs(self, path: Path) -> Iterator[Floats]:
        """Yield x of every row; the table need not have target or unit. Raises DataError."""
        first = 0
        for batch in self._pieces(path, [column.name for column in self.schema.features]):
            yield inputs_of(self.schema, batch, first)
            first += batch.num_rows

    def _pieces(self, path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the table's rows in pieces whose x is no larger than a block."""
        step = max(1, _BLOCK_BYTES // (4 * max(1, self.schema.width)))
        for batch in batches(path, columns):
            for first in range(0, batch.num_rows, step):
                yield batch.slice(first, step)

    def marks(self, path: Path) -> Iterator[Marks]:
        """Yield what its rows hold, before bounds and places, and whose they are.

        Raises DataError.
        """
        first = 0
        for batch in batches(path, self.schema.names):
            yield marks_of(self.schema, batch, first)
            first += batch.num_rows
