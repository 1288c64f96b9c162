"""What a table's row holds, in 16 bytes: by the values of the columns that are read.

It does not depend on the kind of file, the order of rows or columns, or columns that are not read.
Nor does it depend on how a number, a boolean or a date is written, on bounds, or on which
categories have a place. So a new export of the same rows, by another program, gets no second
budget. A number counts as the nearest float32, as a file may hold it as one. A category counts by
the value that training reads in it, 7.0 as 7 and TRUE as true, and a date by its day.

A row's mark is a sum over its columns of 128 bits that depend on the column's name and the cell. It
need not withstand somebody who looks for rows with equal marks: sketches hash marks with a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit.datasets.own.cells import by_value, dates, numbers, texts
from tacit.datasets.own.rows import UNIT
from tacit.datasets.own.schema import Column, Dated, Number
from tacit.datasets.own.table_encoding import units_of
from tacit.datasets.own.table_form import USUAL, TableForm
from tacit.known_data.sketch import Marks

HashLanes = npt.NDArray[np.uint64]  # (n, 2)


def marks_of(
    columns: Iterable[Column],
    unit: str | None,
    batch: pa.RecordBatch,
    first: int = 0,
    form: TableForm = USUAL,
) -> Marks:
    """Return the marks of the rows of `batch`, the first one row `first`, by these columns.

    unit: the column that names the unit, or None. Raises RowError.
    """
    lanes = np.zeros((batch.num_rows, 2), np.uint64)
    for column in {field.name: field for field in columns}.values():
        lanes = lanes + _cells(column, batch.column(column.name), form)
    rows = np.frombuffer(lanes.astype("<u8").tobytes(), UNIT)
    if unit is None:
        units = None
    else:
        units = units_of(unit, batch.column(unit), first)
    return Marks(rows, units)


def _cells(column: Column, values: pa.Array, form: TableForm) -> HashLanes:
    """Return what the cells add. One that cannot be read counts as missing: rows are read apart."""
    if isinstance(column, Number):
        return _numbers(column, numbers(values, form).values)
    if isinstance(column, Dated):
        days = dates(values, column.format).values
        text = pa.array([None if day is None else day.isoformat() for day in days], pa.string())
    else:
        text = texts(values).values
    return _texts(column, text)


def _numbers(column: Number, values: npt.NDArray[np.float64]) -> HashLanes:
    with np.errstate(over="ignore"):  # beyond float32: infinite, as any other such number
        nearest = values.astype(np.float32) + np.float32(0)  # -0 is 0
    nearest[np.isnan(nearest)] = np.nan  # one nan for all
    bits = nearest.view(np.uint32).astype(np.uint64)
    salts = np.frombuffer(_hashed(f"number\0{column.name}"), "<u8")
    return np.stack([_mixed(bits ^ salt) for salt in salts], axis=1)


def _texts(column: Column, values: pa.Array) -> HashLanes:
    encoded = values.dictionary_encode()
    words = [
        f"category\0{column.name}\0{by_value(text)}" for text in encoded.dictionary.to_pylist()
    ]
    missing = f"missing\0{column.name}"
    of_each = np.frombuffer(b"".join(map(_hashed, [*words, missing])), "<u8").reshape(-1, 2)
    places = encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    lanes: HashLanes = of_each[places].astype(np.uint64)
    return lanes


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def _mixed(words: HashLanes) -> HashLanes:
    """Map each 64-bit word to another, one to one (the finaliser of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
