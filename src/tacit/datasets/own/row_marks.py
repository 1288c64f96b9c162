"""What a table's row holds, in 16 bytes: by the values of the columns that are read.

It does not depend on the kind of file, the order of rows or columns, columns that are not read, how
a number is written, its bounds, or which categories have a place. A number counts as the nearest
float32, as a file may hold it as one; a category by its text, 7.0 as 7.

A row's mark is a sum over its columns of 128 bits that depend on the column's name and the cell. It
need not withstand somebody who looks for rows with equal marks: sketches hash marks with a key.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit.datasets.own.rows import UNIT
from tacit.datasets.own.schema import Category, Column, Number, TableSchema
from tacit.datasets.own.table_encoding import as_numbers, as_text, units_of
from tacit.datasets.own.unit_ids import whole
from tacit.datasets.sketch import Marks

HashLanes = npt.NDArray[np.uint64]  # (n, 2)


def marks_of(schema: TableSchema, batch: pa.RecordBatch, first: int = 0) -> Marks:
    """Return the marks of the rows of `batch`, the first one row `first`. Raises DataError."""
    lanes = np.zeros((batch.num_rows, 2), np.uint64)
    for column in {field.name: field for field in (*schema.features, schema.target)}.values():
        lanes = lanes + _cells(column, batch.column(column.name), first)
    rows = np.frombuffer(lanes.astype("<u8").tobytes(), UNIT)
    if schema.unit is None:
        units = None
    else:
        units = units_of(schema.unit, batch, first)
    return Marks(rows, units)


def _cells(column: Column, values: pa.Array, first: int) -> HashLanes:
    if isinstance(column, Number):
        return _numbers(column, values, first)
    return _texts(column, values, first)


def _numbers(column: Number, values: pa.Array, first: int) -> HashLanes:
    with np.errstate(over="ignore"):  # beyond float32: infinite, as any other such number
        numbers = as_numbers(column, values, first).astype(np.float32) + np.float32(0)  # -0 is 0
    numbers[np.isnan(numbers)] = np.nan  # one nan for all
    cells = numbers.view(np.uint32).astype(np.uint64)
    salts = np.frombuffer(_hashed(f"number\0{column.name}"), "<u8")
    return np.stack([_mixed(cells ^ salt) for salt in salts], axis=1)


def _texts(column: Category, values: pa.Array, first: int) -> HashLanes:
    encoded = as_text(column, values, first).dictionary_encode()
    texts = [f"category\0{column.name}\0{whole(text)}" for text in encoded.dictionary.to_pylist()]
    missing = f"missing\0{column.name}"
    of_each = np.frombuffer(b"".join(map(_hashed, [*texts, missing])), "<u8").reshape(-1, 2)
    places = encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    lanes: HashLanes = of_each[places].astype(np.uint64)
    return lanes


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def _mixed(words: HashLanes) -> HashLanes:
    """Map each 64-bit word to another, one to one (the finaliser of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
