"""A table's file as record batches, in bounded memory: CSV or Parquet, told by its first bytes.

All columns of a CSV are read as text, so that no type is guessed from the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from tacit.datasets.own.files import OTHERS
from tacit.errors import DataError

BLOCK_BYTES = 1 << 16  # the fewest bytes of a CSV that are read at a time
_BLOCK_MEMORY = 1 << 24  # arrow sets a block's size aside for every column that it reads
_BLOCK_LINES = 16  # a block has at least this many times the bytes of the file's first line
_BLOCK_ROWS = 1 << 14


def batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The `columns` of the table, some thousand rows at a time. Raises DataError."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
        yield from _parquet(path, columns) if head == b"PAR1" else _csv(path, columns, head)
    except pa.ArrowInvalid as error:  # its own words quote values
        raise DataError(f"{path.name}: {_wrong(head, error)}") from error
    except OSError as error:
        raise DataError(f"{path.name}: {error.strerror or 'cannot be read'}") from error


def _wrong(head: bytes, error: pa.ArrowInvalid) -> str:
    """Return what is wrong with a table, without any value of it."""
    if not head:
        return "is empty"
    if head == b"PAR1":
        return "is not a whole Parquet table: it is damaged, or cut off"
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or "invalid UTF8" in str(error):
        return "is not UTF-8 text; save it as UTF-8"
    return "is not a whole table: a row has another number of columns, or is cut off"


def _parquet(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with parquet.ParquetFile(path) as table:
        _all_there(path, columns, table.schema_arrow.names)
        yield from table.iter_batches(_BLOCK_ROWS, columns=columns)


def _csv(path: Path, columns: list[str], head: bytes) -> Iterator[pa.RecordBatch]:
    for magic, what in OTHERS.items():
        if head.startswith(magic):
            raise DataError(f"{path.name}: is {what}, not a CSV or Parquet table")
    reading = csv.ReadOptions(block_size=_block(path, len(columns)), use_threads=False)
    with csv.open_csv(path, read_options=reading) as probe:
        names = probe.schema.names
    _all_there(path, columns, names)
    converting = csv.ConvertOptions(
        include_columns=columns,
        column_types={name: pa.string() for name in columns},
        strings_can_be_null=True,
        null_values=["", "NA", "N/A", "NaN", "nan", "null", "NULL"],
    )
    with csv.open_csv(path, read_options=reading, convert_options=converting) as reader:
        yield from reader


def _block(path: Path, columns: int) -> int:
    """Bytes of a CSV to read at a time: a row must fit in, and a block a column in memory."""
    with path.open("rb") as file:
        line = len(file.readline(1 << 24))
    return max(BLOCK_BYTES, _BLOCK_MEMORY // max(1, columns), _BLOCK_LINES * line)


def _all_there(path: Path, columns: list[str], names: list[str]) -> None:
    """Raise DataError for a column that is not there once. Names that are like it are said.

    Others are not: where a file has no line of names, its first row would be.
    """
    for column in columns:
        if names.count(column) == 1:
            continue
        like = ", ".join(get_close_matches(column, names))
        if column in names:
            raise DataError(
                f"{path.name}: {names.count(column)} columns are called {column!r}; rename all but "
                "one"
            )
        said = f"; there is {like}" if like else ""
        raise DataError(
            f"{path.name}: column {column!r}: there is none among {len(names)}{said} (the first "
            "line of a CSV names its columns)"
        )
