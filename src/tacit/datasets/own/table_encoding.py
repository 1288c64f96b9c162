"""Turns record batches of an own table into fixed-width rows. One row's result depends on no other.

Errors name the column and its type and never a value. `RowError.where` is for the owner's screen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tacit.datasets.own.rows import EncodedRows, Floats, RowError, UnitIds, each_its_own
from tacit.datasets.own.schema import Category, Column, Number, TableSchema
from tacit.datasets.own.unit_ids import unit_ids


def encode(schema: TableSchema, batch: pa.RecordBatch, first: int = 0) -> EncodedRows:
    """Return the rows of `batch`, whose first one is row `first` of its file. Raises DataError."""
    x = inputs_of(schema, batch, first)
    y = _target(schema.target, batch.column(schema.target.name), first)
    return EncodedRows(x, y, _units(schema, batch, x, y, first))


def inputs_of(schema: TableSchema, batch: pa.RecordBatch, first: int = 0) -> Floats:
    """Return x (n, width) of the rows of `batch`. Raises DataError."""
    x = np.zeros((batch.num_rows, schema.width), dtype=np.float32)
    place = 0
    for column in schema.features:
        values = batch.column(column.name)
        if isinstance(column, Number):
            x[:, place] = _numbers(column, values, first)
        else:
            at = _places(column, values, first)
            x[np.arange(len(at)), place + at] = 1.0
        place += column.width
    return x


def _target(column: Column, values: pa.Array, first: int) -> npt.NDArray[np.int64] | Floats:
    if isinstance(column, Number):
        return _numbers(column, values, first)
    places = _places(column, values, first)
    _refuse(places == len(column.values), column, "a value outside its values", first)
    return places


def _numbers(column: Number, values: pa.Array, first: int) -> Floats:
    """Return numbers cut at the bounds and scaled to [0, 1].

    A missing value becomes the column's own number.
    """
    numbers = as_numbers(column, values, first)
    missing = np.isnan(numbers)
    if column.missing == "refuse":
        _refuse(missing, column, "a missing value", first)
    else:
        numbers = np.where(missing, float(column.missing), numbers)
    cut = np.clip(numbers, column.low, column.high)
    return ((cut - column.low) / (column.high - column.low)).astype(np.float32)


def as_numbers(column: Number, values: pa.Array, first: int) -> npt.NDArray[np.float64]:
    """Return float64 (n,), nan where a value is missing."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.utf8_trim_whitespace(values)
        values = pc.if_else(pc.equal(values, ""), None, values)
    try:
        numbers = values.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row = first + _first_bad(values, lambda part: part.cast(pa.float64()))
        raise RowError(
            f"column {column.name!r}: expected numbers, found {values.type}", row
        ) from error
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


def _places(column: Category, values: pa.Array, first: int) -> npt.NDArray[np.int64]:
    """Return the place of each value in the column's values; len(values) for any other."""
    index = pc.index_in(
        as_text(column, values, first), value_set=pa.array(column.values, pa.string())
    )
    filled = pc.fill_null(index, len(column.values))
    places = np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)
    if column.missing == "refuse":
        missing = as_text(column, values, first).is_null().to_numpy(zero_copy_only=False)
        _refuse(missing, column, "a missing value", first)
    return places


def as_text(column: Category | str, values: pa.Array, first: int) -> pa.Array:
    """Return text, trimmed; null where a value is missing or nothing but blanks."""
    if isinstance(column, str):
        name = column
    else:
        name = column.name
    try:
        text = pc.utf8_trim_whitespace(_decoded(values).cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RowError(f"column {name!r}: expected text, found {values.type}", first) from error
    return pc.if_else(pc.equal(text, ""), None, text)


def _decoded(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    return values


def _units(
    schema: TableSchema, batch: pa.RecordBatch, x: Floats, y: npt.NDArray[np.generic], first: int
) -> UnitIds:
    """Return 16 bytes of SHA-256 of each row's unit.

    Without a unit column it is of the encoded row itself.
    """
    if schema.unit is None:
        return each_its_own(x, y)
    return units_of(schema.unit, batch, first)


def units_of(unit: str, batch: pa.RecordBatch, first: int = 0) -> UnitIds:
    """Return 16 bytes of SHA-256 of each row's unit, which the column `unit` has.

    Raises DataError.
    """
    values = _decoded(batch.column(unit))
    if not pa.types.is_floating(values.type) and not pa.types.is_decimal(values.type):
        values = as_text(unit, values, first)
    return unit_ids(values.to_pylist(), f"column {unit!r} (unit)", first)


def _refuse(bad: npt.NDArray[np.bool_], column: Column, what: str, first: int) -> None:
    """Raise RowError for the first row that is `bad`."""
    if bad.any():
        kind = type(column).__name__.lower()
        raise RowError(f"column {column.name!r} ({kind}): {what}", first + int(bad.argmax()))


def _first_bad(values: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> int:
    """Return the first row of `values` that `convert` does not take."""
    for row in range(len(values)):
        try:
            convert(values.slice(row, 1))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return row
    return 0
