"""Rows of a CSV, Parquet or Excel table, by its public schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tacit.datasets.own.cells import texts
from tacit.datasets.own.column_shares import ShareCounter
from tacit.datasets.own.csv_head import looks_like_utf8
from tacit.datasets.own.file_reading import digest
from tacit.datasets.own.row_marks import marks_of
from tacit.datasets.own.rows import EncodedRows, Inputs, UnitIds
from tacit.datasets.own.schema import (
    Category,
    CountsGoal,
    Dated,
    EventGoal,
    LabelsGoal,
    NextTokenGoal,
    TableSchema,
)
from tacit.datasets.own.table_encoding import MisfitError, encode, everyone, fitting, inputs_of
from tacit.datasets.own.table_file import batches, names_in
from tacit.datasets.own.table_form import USUAL, BadRows, TableForm
from tacit.datasets.own.unit_ids import named_id
from tacit.datasets.target import Target
from tacit.known_data.sketch import Marks

_UTF8 = (
    "is UTF-8, and data.encoding says {}: letters with accents are read as others; save it in that "
    "encoding, or all files as UTF-8"
)
_MOST_IDS = 200  # columns that are looked at for ids
_MOST_SEEN = 200_000  # ids of one that are compared
_BLOCK_BYTES = 1 << 26  # the most bytes of x at a time


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads tables of `schema`, whose text is of a `form`. bad_rows: what one that misfits does."""

    schema: TableSchema
    form: TableForm = USUAL
    bad_rows: BadRows = "refuse"

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
    def integers(self) -> int | None:
        """Of a text, how many different tokens there are; None: x is float32."""
        text = self.schema.text
        if text is None:
            return None
        return text.vocabulary.size

    @property
    def target(self) -> Target:
        """The kind of target that the schema's is."""
        goal = self.schema.target
        if isinstance(goal, Category):
            return Target("classes", goal.values)
        if isinstance(goal, LabelsGoal):
            return Target("labels", tuple(column.name for column in goal.columns))
        if isinstance(goal, CountsGoal):
            return Target("counts", high=int(goal.column.high))
        if isinstance(goal, EventGoal):
            return Target("event", (goal.event.name,), low=goal.time.low, cuts=goal.cuts)
        if isinstance(goal, NextTokenGoal):
            text = goal.column
            return Target("tokens", tokens=text.vocabulary.size, length=text.length)
        if goal.center is not None and goal.scale is not None:
            return Target("number", low=goal.center, span=goal.scale)
        return Target("number", low=goal.low, span=goal.high - goal.low)

    def digest(self) -> str:
        """Return SHA-256 of the schema, and of a form that is not the usual one."""
        schema = self.schema.digest().hex()
        form = self.form.stated()
        if self.bad_rows != "refuse":
            form["bad_rows"] = self.bad_rows
        if not form:
            return schema
        return hashlib.sha256(json.dumps([schema, form], sort_keys=True).encode()).hexdigest()

    def content(self, path: Path) -> str:
        """Return SHA-256 of the file. Raises DataError."""
        return digest(path)

    def read(self, path: Path) -> Iterator[EncodedRows]:
        """Yield the table's rows, a few thousand at a time.

        Raises DataError; for rows that do not fit, it names every column that has some.
        """
        first = 0
        leave_out = self.bad_rows == "leave out"
        errors: dict[str, MisfitError] = {}
        for batch in self._pieces(path, self.schema.names):
            try:
                rows = encode(self.schema, batch, first, self.form, leave_out=leave_out)
            except MisfitError as error:
                errors.update({name: error for name in error.errors if name not in errors})
            else:
                if not errors:
                    yield rows
            first += batch.num_rows
        if errors:
            first_of_each = {name: error.errors[name] for name, error in errors.items()}
            raise MisfitError(first_of_each, path.name)

    def everyone(self, path: Path) -> Iterator[UnitIds]:
        """Yield whose each row is, also of rows that are left out. Raises DataError."""
        for batch in self._batches(path, self.schema.names):
            yield everyone(self.schema, batch)

    def inputs(self, path: Path) -> Iterator[Inputs]:
        """Yield x of every row; the table need not have target or unit. Raises DataError."""
        first = 0
        for batch in self._pieces(path, [column.name for column in self.schema.features]):
            try:
                yield inputs_of(self.schema, batch, first, self.form)
            except MisfitError as error:
                raise MisfitError(error.errors, path.name) from error
            first += batch.num_rows

    def words(self, x: Inputs, tokens: Iterable[Sequence[int]]) -> Iterator[str]:
        """Yield tokens of each row of x (n, length) as words, up to the last place of its text.

        tokens: one for each place. Only of a schema with a text.
        """
        text = self.schema.text
        assert text is not None
        for row, numbers in zip(x, tokens, strict=True):
            [places] = np.nonzero(row != text.vocabulary.pad)
            end = int(places[-1]) + 1 if len(places) else 0
            yield text.vocabulary.words(numbers[:end])

    def named(self, path: Path, column: str) -> Iterator[str]:
        """Yield the text of a column in every row, in the order of `inputs`; "" for no value.

        Raises DataError.
        """
        for batch in self._batches(path, [column]):
            yield from (text or "" for text in texts(batch.column(0), ()).values.to_pylist())

    def _pieces(self, path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the table's rows in pieces whose x is no larger than a block."""
        step = max(1, _BLOCK_BYTES // (4 * max(1, self.schema.width)))
        for batch in self._batches(path, columns):
            for first in range(0, batch.num_rows, step):
                yield batch.slice(first, step)

    def _batches(self, path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
        dated = {
            column.name: column.format
            for column in self.schema.features
            if isinstance(column, Dated)
        }
        return batches(path, columns, self.form, dated)

    def marks(self, path: Path) -> Iterator[Marks]:
        """Yield what its rows hold, before bounds and places, and whose they are.

        Raises DataError.
        """
        first = 0
        for batch in self._batches(path, self.schema.names):
            rows = batch
            if self.bad_rows == "leave out":
                rows = batch.filter(pa.array(fitting(self.schema, batch, self.form)))
            yield marks_of(self.schema.columns, self.schema.unit, rows, first, self.form)
            first += batch.num_rows

    def remarks(self, path: Path, *, quoting: bool = False) -> Iterator[str]:
        """Yield what the owner should know of columns that say little.

        quoting: whether a value may be quoted. Raises OwnersError where nearly all rows of one do
        not fit the schema; DataError.
        """
        shares = self._shares(path)
        if looks_like_utf8(path, self.form):
            yield _UTF8.format(self.form.encoding)
        if self.schema.unit is None:
            yield from self._persons(path)
        yield from shares.remarks(quoting=quoting)

    def _persons(self, path: Path) -> Iterator[str]:
        """Yield a word on columns that are called as ids are, and repeat, where no unit is."""
        names = names_in(path, self.form, self.schema.names)
        unread = [name for name in names if name not in self.schema.names]
        for name in unread[:_MOST_IDS]:
            if not named_id(name) or names.count(name) > 1:
                continue
            seen: set[str] = set()
            for batch in batches(path, [name], self.form):
                words = texts(batch.column(0)).values.drop_null()
                different = set(words.unique().to_pylist())
                if len(different) < len(words) or different & seen:
                    yield (
                        f"column {name!r} is not read, and its values repeat: if it says whose a "
                        "row is, privacy is for each row alone, and not for a person with several; "
                        f"data.unit = {name!r} makes it for the person"
                    )
                    break
                seen |= different
                if len(seen) > _MOST_SEEN:  # memory is bounded
                    break

    def strangers(self, path: Path) -> Iterator[str]:
        """Yield how many new rows have values that the schema's columns do not know.

        The table need not have target or unit. Raises DataError.
        """
        shares = ShareCounter(self.schema.features, self.form)
        for batch in self._batches(path, [column.name for column in self.schema.features]):
            shares.count(batch)
        if looks_like_utf8(path, self.form):
            yield _UTF8.format(self.form.encoding)
        yield from shares.strangers()

    def silent(self, path: Path) -> set[str]:
        """Return the columns that `remarks` would refuse. Raises DataError."""
        return set(self._shares(path).silent())

    def misfits(self, path: Path) -> set[str]:
        """Return the columns with a cell that does not fit. Raises DataError."""
        names: set[str] = set()
        for batch in self._pieces(path, self.schema.names):
            try:
                encode(self.schema, batch, form=self.form)
            except MisfitError as error:
                names |= set(error.errors)
        return names

    def _shares(self, path: Path) -> ShareCounter:
        shares = ShareCounter(self.schema.columns, self.form)
        for batch in self._batches(path, self.schema.names):
            shares.count(batch)
        return shares
