"""How much of each column of a table says little: for the owner's screen, before ε is spent.

A schema that does not fit its rows is not seen while they are read. A value that is not listed has
a place, and a number beyond its bounds is cut. Where that is so of nearly all rows, the schema
takes the column for another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.datasets.own.cells import dates, numbers
from tacit.datasets.own.schema import (
    Category,
    Column,
    Dated,
    Hashed,
    Number,
    TableSchema,
    Tokenized,
)
from tacit.datasets.own.table_encoding import category_texts, places_of
from tacit.datasets.own.table_form import TableForm
from tacit.errors import OwnersError

_WORTH_A_WORD = 0.05
_NEARLY_ALL = 0.98
_FEW = 20  # rows of which nothing is said


@dataclass(frozen=True, slots=True)
class ColumnShare:
    """Counts of a column's rows.

    missing: without a value. elsewhere: with a value that is none of a category's, or beyond a
    number's bounds. at_low, at_high: exactly at a bound.
    """

    column: Column
    rows: int = 0
    missing: int = 0
    elsewhere: int = 0
    at_low: int = 0
    at_high: int = 0

    def plus(self, **counts: int) -> ColumnShare:
        """Return these counts and those of more rows."""
        return replace(self, **{key: getattr(self, key) + count for key, count in counts.items()})

    def remark(self) -> str:
        """Return what the owner should know of the column; "" for nothing."""
        if self.rows < _FEW:
            return ""
        name = self._name
        if self.missing > _WORTH_A_WORD * self.rows:
            return f"{name}: {self._share(self.missing)} of the rows have no value"
        if self.elsewhere > _WORTH_A_WORD * self.rows:
            return f"{name}: {self._share(self.elsewhere)} of the rows are {self._where}"
        if max(self.at_low, self.at_high) > _NEARLY_ALL * self.rows:
            return f"{name}: nearly all rows are exactly at one of its bounds"
        return ""

    def refuse(self) -> None:
        """Raise OwnersError where nearly all rows have no place of their own, or no value."""
        if self.rows < _FEW or self.missing + self.elsewhere < _NEARLY_ALL * self.rows:
            return
        name = self._name
        if self.missing > self.elsewhere:
            what = "have no value"
        else:
            what = f"are {self._where}"
        raise OwnersError(
            f"{name}: nearly all rows {what}; the run file's [data.columns] takes it for another",
            f"{name}: {self._share(self.missing + self.elsewhere)} of the rows {what}: a "
            "model would learn nothing from it; correct [data.columns], or take the column out",
        )

    @property
    def _name(self) -> str:
        return f"column {self.column.name!r}"

    def _share(self, count: int) -> str:
        return f"{count / self.rows:.0%}"

    @property
    def _where(self) -> str:
        if isinstance(self.column, Category):
            return f"none of its values ({', '.join(self.column.values[:4])}, …)"
        return f"beyond its bounds ({self._bounds})"

    @property
    def _bounds(self) -> str:
        if isinstance(self.column, Number):
            return f"{self.column.low:g} to {self.column.high:g}"
        if isinstance(self.column, Dated):
            return f"{self.column.since} to {self.column.until}"
        return ""


class ShareCounter:
    """The shares of all columns, counted batch by batch."""

    def __init__(self, schema: TableSchema, form: TableForm) -> None:
        self._form = form
        every = {column.name: column for column in schema.columns}
        self._shares = {name: ColumnShare(column) for name, column in every.items()}

    def count(self, batch: pa.RecordBatch) -> None:
        """Count the rows of `batch`."""
        for name, share in self._shares.items():
            counts = _counts(share.column, batch.column(name), self._form)
            self._shares[name] = share.plus(rows=batch.num_rows, **counts)

    def remarks(self) -> list[str]:
        """Return what the owner should know of each column; "" for nothing.

        Raises OwnersError for a column whose rows nearly all have no value of the schema.
        """
        for share in self._shares.values():
            share.refuse()
        return [share.remark() for share in self._shares.values()]


def _counts(column: Column, values: pa.Array, form: TableForm) -> dict[str, int]:
    if isinstance(column, Number):
        return _of_numbers(column, numbers(values, form, column.missing_codes).values)
    if isinstance(column, Dated):
        days = dates(values, column.format, column.missing_codes).values
        read = [day.isoformat() for day in days if day is not None]
        beyond = sum(not column.since <= day <= column.until for day in read)
        return {"missing": len(days) - len(read), "elsewhere": beyond}
    text = category_texts(column, values).values
    if isinstance(column, Hashed | Tokenized):
        return {"missing": text.null_count}
    other = int((places_of(column, text) == len(column.values)).sum()) - text.null_count
    return {"missing": text.null_count, "elsewhere": other}


def _of_numbers(column: Number, values: Any) -> dict[str, int]:
    return {
        "missing": int(np.isnan(values).sum()),
        "elsewhere": int(((values < column.low) | (values > column.high)).sum()),
        "at_low": int((values == column.low).sum()),
        "at_high": int((values == column.high).sum()),
    }
