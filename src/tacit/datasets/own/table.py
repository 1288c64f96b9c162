"""Rows of a CSV or Parquet table, by its public schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tacit.datasets.own.encoding import encode
from tacit.datasets.own.rows import EncodedRows
from tacit.datasets.own.schema import TableSchema
from tacit.datasets.own.table_file import batches


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads tables of `schema`."""

    schema: TableSchema

    @property
    def unit(self) -> str | None:
        """The unit column."""
        return self.schema.unit

    @property
    def shape(self) -> tuple[int, ...]:
        """The width of a row."""
        return (self.schema.width,)

    @property
    def classes(self) -> int | None:
        """Number of classes; None for a regression."""
        return self.schema.classes

    def digest(self) -> str:
        """SHA-256 of the schema."""
        return self.schema.digest().hex()

    def read(self, path: Path) -> Iterator[EncodedRows]:
        """The table's rows, a few thousand at a time. Raises DataError."""
        first = 0
        for batch in batches(path, self.schema.names):
            yield encode(self.schema, batch, first)
            first += batch.num_rows
