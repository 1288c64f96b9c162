"""How much of each column of a table says little: for the owner's screen, before ε is spent.

A schema that does not fit its rows is not seen while they are read. A value that is not listed has
a place, and a number beyond its bounds is cut. Where that is so of nearly all rows, the schema
takes the column for another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.datasets.own.cells import by_value, dates, numbers
from tacit.datasets.own.schema import Category, Column, Dated, Hashed, Number, Tokenized
from tacit.datasets.own.table_encoding import category_texts, places_of
from tacit.datasets.own.table_form import MISSING_NUMBERS, TableForm
from tacit.errors import OwnersError
from tacit.shown import printable

_WORTH_A_WORD = 0.05
_NEARLY_ALL = 0.98
_FEW = 20  # rows of which nothing is said
_REPEATS = 3  # rows that a value beyond the bounds needs to be taken for a code
_SAID_CODES = 3  # the most of a column's values that are quoted
_DIFFERENT = 10_000  # values beyond the bounds that are counted; of more, a code is among the first
_CODES = frozenset(f"{code:g}" for code in MISSING_NUMBERS)


@dataclass(frozen=True, slots=True)
class ColumnShare:
    """Counts of a column's rows.

    missing: without a value. elsewhere: with a value that is none of a category's, or beyond a
    number's bounds. at_low, at_high: exactly at a bound. below, above: the values beyond either
    bound, or those that are not listed, and how many rows have each.
    """

    column: Column
    rows: int = 0
    missing: int = 0
    elsewhere: int = 0
    at_low: int = 0
    at_high: int = 0
    below: Counter[str] = field(default_factory=Counter)
    above: Counter[str] = field(default_factory=Counter)

    def plus(self, more: ColumnShare) -> ColumnShare:
        """Return these counts and those of more rows."""
        return replace(
            self,
            rows=self.rows + more.rows,
            missing=self.missing + more.missing,
            elsewhere=self.elsewhere + more.elsewhere,
            at_low=self.at_low + more.at_low,
            at_high=self.at_high + more.at_high,
            below=_together(self.below, more.below),
            above=_together(self.above, more.above),
        )

    def remarks(self, *, quoting: bool) -> Iterator[str]:
        """Yield what the owner should know of the column.

        quoting: whether a value of the rows may be quoted, as on the screen of `tacit check`.
        """
        if self.rows < _FEW:
            return
        name = self._name
        if self.missing > _WORTH_A_WORD * self.rows:
            yield f"{name}: {self._share(self.missing)} of the rows have no value"
        present = self.rows - self.missing
        if self.elsewhere > _WORTH_A_WORD * present:
            of = "rows with a value" if self.missing else "rows"
            yield f"{name}: {self.elsewhere / present:.0%} of the {of} are {self._where}"
        if max(self.at_low, self.at_high) > _NEARLY_ALL * present:
            yield f"{name}: nearly all rows are exactly at one of its bounds"
        yield from self._of_codes(quoting=quoting)

    def stranger(self) -> str:
        """Return how many rows have a value that the model hardly knows, or never saw; "" for none.

        It is for new rows, which are predicted.
        """
        if not self.elsewhere:
            return ""
        said = f"{self._name}: {self.elsewhere:,} of {self.rows:,} rows"
        several = self.elsewhere > 1
        if isinstance(self.column, Category):
            verb = "have" if several else "has"
            return f"{said} {verb} {self._where}, and the model hardly knows others"
        verb = "are" if several else "is"
        then = "count" if several else "counts"
        return f"{said} {verb} {self._where}, and {then} as the bound"

    def _of_codes(self, *, quoting: bool) -> Iterator[str]:
        """Yield a word on values that repeat where none is expected, as -9 does."""
        codes = self._codes()
        if not codes:
            return
        if isinstance(self.column, Category):
            where = "that are none of its values"
        elif isinstance(self.column, Hashed):
            where = "that may stand for no value"
        else:
            where = f"beyond its bounds ({self._bounds})"
        if not quoting:
            yield f"{self._name}: values {where} repeat (tacit check says which)"
            return
        listed = ", ".join(f"{printable(code)} ({count:,} rows)" for code, count in codes)
        written = ", ".join(_as_toml(code) for code, _ in codes)
        yield (
            f"{self._name}: values {where} repeat: {listed}; where they stand for no value, set "
            f"missing_codes = [{written}] and missing"
        )

    def _codes(self) -> list[tuple[str, int]]:
        """Return the values that may stand for no value, and how many rows have each.

        They are usual codes, or one that most rows beyond a bound have.
        """
        codes: dict[str, int] = {}
        for beyond in (self.below, self.above):
            total = beyond.total()
            for value, count in beyond.most_common():
                most = count > total / 2 and not isinstance(self.column, Category | Hashed)
                if count >= _REPEATS and (most or value in _CODES):
                    codes[value] = count
        return sorted(codes.items(), key=lambda item: -item[1])[:_SAID_CODES]

    @property
    def says_nothing(self) -> bool:
        """Whether nearly all rows have no place of their own, or no value."""
        return self.rows >= _FEW and self.missing + self.elsewhere >= _NEARLY_ALL * self.rows

    def refuse(self) -> None:
        """Raise OwnersError where nearly all rows have no place of their own, or no value."""
        if not self.says_nothing:
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
            listed = ", ".join(self.column.values[:4])
            more = ", …" if len(self.column.values) > 4 else ""
            return f"none of its values ({listed}{more})"
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

    def __init__(self, columns: Iterable[Column], form: TableForm) -> None:
        self._form = form
        every = {column.name: column for column in columns}
        self._shares = {name: ColumnShare(column) for name, column in every.items()}

    def count(self, batch: pa.RecordBatch) -> None:
        """Count the rows of `batch`."""
        for name, share in self._shares.items():
            counts = _counts(share.column, batch.column(name), self._form)
            self._shares[name] = share.plus(counts)

    def silent(self) -> list[str]:
        """Return the columns that `remarks` would refuse."""
        return [name for name, share in self._shares.items() if share.says_nothing]

    def remarks(self, *, quoting: bool = False) -> Iterator[str]:
        """Yield what the owner should know of each column.

        quoting: whether a value may be quoted. Raises OwnersError for a column whose rows nearly
        all have no value of the schema.
        """
        for share in self._shares.values():
            share.refuse()
        for share in self._shares.values():
            yield from share.remarks(quoting=quoting)

    def strangers(self) -> Iterator[str]:
        """Yield how many rows have values of each column that the schema does not know."""
        return filter(None, (share.stranger() for share in self._shares.values()))


def _together(some: Counter[str], more: Counter[str]) -> Counter[str]:
    """Return both counts; once there are very many values, of those alone that are there."""
    if not more:
        return some
    full = len(some) >= _DIFFERENT
    known = {value: count for value, count in more.items() if not full or value in some}
    return some + Counter(known)


def _as_toml(code: str) -> str:
    """Return a value as a run file writes it."""
    if re.fullmatch(r"-?\d+(\.\d+)?", code):
        return code
    return f'"{printable(code)}"'


def _counts(column: Column, values: pa.Array, form: TableForm) -> ColumnShare:
    rows = len(values)
    if isinstance(column, Number):
        return _of_numbers(column, numbers(values, form, column.missing_codes).values)
    if isinstance(column, Dated):
        days = dates(values, column.format, column.missing_codes).values
        read = [day.isoformat() for day in days if day is not None]
        below = Counter(day for day in read if day < column.since)
        above = Counter(day for day in read if day > column.until)
        missing = rows - len(read)
        beyond = below.total() + above.total()
        return ColumnShare(column, rows, missing, beyond, below=below, above=above)
    text = category_texts(column, values).values
    if isinstance(column, Tokenized):
        return ColumnShare(column, rows, text.null_count)
    if isinstance(column, Hashed):
        words = _texts_of(text.drop_null())
        codes = Counter({word: words[word] for word in _CODES & words.keys()})
        return ColumnShare(column, rows, text.null_count, below=codes)
    other = places_of(column, text) == len(column.values)
    unlisted = other & ~np.asarray(text.is_null().to_numpy(zero_copy_only=False), np.bool_)
    words = _texts_of(text.filter(pa.array(unlisted)))
    return ColumnShare(column, rows, text.null_count, words.total(), below=words)


def _texts_of(text: pa.Array) -> Counter[str]:
    """Return the values that texts write, and how many rows have each."""
    words: Counter[str] = Counter()
    for each in pc.value_counts(text).to_pylist():
        words[by_value(each["values"])] += each["counts"]
    return words


def _of_numbers(column: Number, values: Any) -> ColumnShare:
    below = _numbers_of(values[values < column.low])
    above = _numbers_of(values[values > column.high])
    return ColumnShare(
        column,
        rows=len(values),
        missing=int(np.isnan(values).sum()),
        elsewhere=below.total() + above.total(),
        at_low=int((values == column.low).sum()),
        at_high=int((values == column.high).sum()),
        below=below,
        above=above,
    )


def _numbers_of(values: Any) -> Counter[str]:
    different, counts = np.unique(values, return_counts=True)
    shown = (f"{value:.12g}" for value in different.tolist())
    return Counter(dict(zip(shown, counts.tolist(), strict=True)))
