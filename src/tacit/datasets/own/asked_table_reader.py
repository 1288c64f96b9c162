"""Rows of a table as questions count them: packed, by the sheet's public constants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit.datasets.own.cells import by_value, numbers
from tacit.datasets.own.file_reading import digest
from tacit.datasets.own.row_marks import marks_of
from tacit.datasets.own.rows import UNIT, EncodedRows, Inputs, UnitIds, each_its_own
from tacit.datasets.own.schema import Category, Number
from tacit.datasets.own.table_encoding import Misfits, category_texts, known_units
from tacit.datasets.own.table_file import batches, names_in
from tacit.datasets.own.table_form import USUAL, BadRows, TableForm
from tacit.datasets.target import Target
from tacit.known_data.sketch import Marks
from tacit.questions.row_parts import RawCells, Reals, RowVectors
from tacit.questions.sheet import QuestionSheet

_BLOCK_BYTES = 1 << 26  # the most bytes of x at a time
_UNREAD = "column {!r}: most of its cells are no numbers, so these count as missing"


@dataclass(frozen=True, slots=True)
class AskedTableReader:
    """Reads tables for the questions of a sheet.

    columns: what is known of those that are asked about, by name: a `Number`, whose bounds are not
    read here, or a `Category`. unit: the column that names the unit. bad_rows: what a row without a
    unit is: refused, or left out.

    A cell that cannot be read counts as missing.
    """

    sheet: QuestionSheet
    columns: tuple[Number | Category, ...]
    form: TableForm = USUAL
    unit: str | None = None
    bad_rows: BadRows = "refuse"

    folders: ClassVar[bool] = False
    integers: ClassVar[int | None] = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of a packed row."""
        return (self.sheet.stored,)

    @property
    def target(self) -> Target:
        """A number, which is 0 in every row: nothing is learnt."""
        return Target("number")

    @property
    def names(self) -> list[str]:
        """The names of the columns that are read, and the unit's, each once."""
        columns = [*self.sheet.numeric, *self.sheet.textual, *([self.unit] if self.unit else [])]
        return list(dict.fromkeys(columns))

    def digest(self) -> str:
        """Return SHA-256 of all that a row's vector follows from beside the row."""
        codes = {column.name: column.missing_codes for column in self.columns}
        stated = [self.sheet.stated(), codes, self.form.stated(), self.unit, self.bad_rows]
        text = json.dumps(stated, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def content(self, path: Path) -> str:
        """Return SHA-256 of the file. Raises DataError."""
        return digest(path)

    def read(self, path: Path) -> Iterator[EncodedRows]:
        """Yield the table's rows, a few thousand at a time. Raises DataError."""
        for batch, ids, fits in self._pieces(path):
            x = self._packed(batch)[fits]
            y = np.zeros(len(x), np.float32)
            yield EncodedRows(x, y, each_its_own(x, y) if ids is None else ids[fits])

    def inputs(self, path: Path) -> Iterator[Inputs]:
        """Yield every row, packed. Raises DataError."""
        for batch, _, _ in self._pieces(path):
            yield self._packed(batch)

    def everyone(self, path: Path) -> Iterator[UnitIds]:
        """Yield whose each row is that says it. Raises DataError."""
        for batch, ids, fits in self._pieces(path):
            yield np.zeros(batch.num_rows, UNIT) if ids is None else ids[fits]

    def marks(self, path: Path) -> Iterator[Marks]:
        """Yield what its rows hold in these columns, and whose they are. Raises DataError."""
        first = 0
        columns = [self._column(name) for name in (*self.sheet.numeric, *self.sheet.textual)]
        for batch, _, fits in self._pieces(path):
            rows = batch.filter(pa.array(fits))
            yield marks_of(columns, self.unit, rows, first, self.form)
            first += batch.num_rows

    def remarks(self, path: Path, *, quoting: bool = False) -> Iterator[str]:
        """Yield a word on columns that are asked about as numbers, and have few. Raises DataError.

        quoting: no cell is quoted in any case.
        """
        unread = dict.fromkeys(self.sheet.numeric, 0)
        written = dict(unread)
        for batch, _, _ in self._pieces(path):
            for name in unread:
                cells = numbers(batch.column(name), self.form, self._codes(name))
                unread[name] += int(cells.unread.sum())
                written[name] += int((cells.unread | ~np.isnan(cells.values)).sum())
        yield from (_UNREAD.format(name) for name in unread if 2 * unread[name] > written[name])

    def _pieces(
        self, path: Path
    ) -> Iterator[tuple[pa.RecordBatch, UnitIds | None, npt.NDArray[np.bool_]]]:
        """Yield rows, whose they are, and which of them say it, in pieces of bounded memory.

        Raises DataError, and RowError for a row without a unit that is not left out.
        """
        step = max(1, _BLOCK_BYTES // (4 * max(1, self.sheet.stored)))
        names = self.names or _any_column(path, self.form)
        first = 0
        for block in batches(path, names, self.form):
            for place in range(0, block.num_rows, step):
                piece = block.slice(place, step)
                misfits = Misfits(piece.num_rows, first)
                ids = None
                if self.unit is not None:
                    leave_out = self.bad_rows == "leave out"
                    values = piece.column(self.unit)
                    ids = known_units(self.unit, values, misfits, leave_out=leave_out)
                yield piece, ids, ~misfits.bad
                first += piece.num_rows

    def _packed(self, batch: pa.RecordBatch) -> RowVectors:
        read = {name: self._numbers(name, batch) for name in self.sheet.numeric}
        written = {name: self._texts(name, batch) for name in self.sheet.textual}
        return self.sheet.packed(RawCells(batch.num_rows, read, written))

    def _numbers(self, name: str, batch: pa.RecordBatch) -> Reals:
        cells = numbers(batch.column(name), self.form, self._codes(name))
        read: Reals = np.where(cells.unread, np.nan, cells.values)
        return read

    def _texts(self, name: str, batch: pa.RecordBatch) -> npt.NDArray[Any]:
        """Return each cell's one text; None for no value, and for what cannot be read."""
        column = self._column(name)
        if isinstance(column, Number):
            column = Category(name, (), "other", column.missing_codes)
        encoded = category_texts(column, batch.column(name)).values.dictionary_encode()
        words = [by_value(word) for word in encoded.dictionary.to_pylist()]
        places = encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
        cells: npt.NDArray[Any] = np.array([*words, None], object)[places]
        return cells

    def _column(self, name: str) -> Number | Category:
        column = next((column for column in self.columns if column.name == name), None)
        if column is not None:
            return column
        if name in self.sheet.numeric:
            return Number(name, 0.0, 1.0, 0.0)
        return Category(name, (), "other")

    def _codes(self, name: str) -> tuple[str, ...]:
        return self._column(name).missing_codes


def _any_column(path: Path, form: TableForm) -> list[str]:
    """Return the name of a column of a table whose rows are only counted. Raises DataError."""
    names = names_in(path, form, [])
    return [name for name in names if names.count(name) == 1][:1]
