"""Guesses the public schema of a table from a public sample of it.

All that a guess reads becomes public: bounds, classes, the names of columns. So the sample must be
public, or made up; it is never the training file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tacit.datasets.own.parquet_pages import PagesError
from tacit.datasets.own.table_file import check_header, rows_of_parquet
from tacit.errors import ConfigError, DataError
from tacit.regular_file import opened

MOST_VALUES = 50  # the most values of a category; a text with more is not read
_FEW_NUMBERS = 10  # a whole number with so few different values is a category
_SAMPLE_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Guess:
    """A column of the sample: a number in [low, high], a category, or neither, and then why."""

    name: str
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it has bounds."""
        return self.low is not None


def guessed(sample: Path, target: str | None, unit: str | None) -> tuple[list[Guess], Guess]:
    """Guess every column but the unit's and the target's, and the target.

    target: None stands for the last column. Raises ConfigError, DataError.
    """
    table = _read(sample)
    names: list[str] = table.column_names
    goal = target or next(name for name in reversed(names) if name != unit)
    for option, name in (("--target", goal), ("--unit", unit)):
        if name is not None and name not in names:
            raise ConfigError(f"{option} {name!r}: {sample.name} has {', '.join(names[:20])}")
    columns = {name: _column(name, table.column(name)) for name in names if name != unit}
    if columns[goal].left_out:
        raise ConfigError(
            f"--target {goal}: {columns[goal].left_out}; a target is a number, or has a few values"
        )
    return [guess for name, guess in columns.items() if name != goal], columns[goal]


def _read(sample: Path) -> pa.Table:
    try:
        table = _parsed(sample)
    except OSError as error:
        raise DataError(f"--table {sample}: {error.strerror or 'cannot be read'}") from error
    except (pa.ArrowException, PagesError, UnicodeDecodeError, OverflowError) as error:
        raise DataError(f"--table {sample}: is not a CSV or Parquet table") from error
    except DataError as error:
        raise DataError(f"--table {error}") from error
    for name in table.column_names:
        if table.column_names.count(name) > 1:
            raise DataError(f"--table {sample}: two columns are called {name!r}; rename one")
    if not table.num_rows:
        raise DataError(f"--table {sample}: has no rows")
    return table.slice(0, _SAMPLE_ROWS)


def _parsed(sample: Path) -> pa.Table:
    with opened(sample) as file:
        is_parquet = file.read(4) == b"PAR1"
    if is_parquet:
        return rows_of_parquet(sample, _SAMPLE_ROWS)
    check_header(sample)
    return csv.read_csv(sample)


def _column(name: str, column: pa.ChunkedArray) -> Guess:
    kind = column.type
    values = pc.unique(column.drop_null())
    if not len(values):
        return Guess(name, left_out="has no value in the sample")
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    whole_and_few = pa.types.is_integer(kind) and len(values) <= _FEW_NUMBERS
    if numeric and not whole_and_few:
        return _number(name, column)
    if len(values) > MOST_VALUES:
        return Guess(name, left_out=f"has {len(values)} different values in the sample")
    return Guess(name, values=tuple(sorted(_text(value) for value in values.to_pylist())))


def _number(name: str, column: pa.ChunkedArray) -> Guess:
    ends = pc.min_max(column.cast(pa.float64())).as_py()
    low = _outward(ends["min"], down=True)
    high = _outward(ends["max"], down=False)
    return Guess(name, low, high if high > low else low + 1.0)


def _outward(value: float, *, down: bool) -> float:
    """Round `value` outward to two digits, so that it is not the number of one row."""
    if not value or not math.isfinite(value):
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    if down:
        multiple = math.floor(value / step)
    else:
        multiple = math.ceil(value / step)
    return round(multiple * step, 12)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip()
