"""A table's file as record batches, in bounded memory: CSV, Parquet or Excel, by its first bytes.

All columns of a CSV or a sheet are read as text, so that no type is guessed from the rows. None of
its cells is null, as `cells` reads them. A file whose author
would have more memory taken than the public bounds here is refused before it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from tacit.datasets.own.csv_head import MOST_HEADER, CsvHead, check_count, csv_head, not_in
from tacit.datasets.own.excel_sheet import EXCEL, excel_sheet
from tacit.datasets.own.file_reading import OTHERS
from tacit.datasets.own.parquet_pages import PagesError, check_apart, unpacked
from tacit.datasets.own.table_form import USUAL, TableForm
from tacit.datasets.own.utf8_copy import utf8_file
from tacit.errors import DataError, OwnersError
from tacit.regular_file import opened

MOST_TEXT = 1 << 20  # bytes of a text in a Parquet's cell
MOST_UNPACKED = 1 << 28  # bytes of the read columns of a row group that are unpacked at a time
_OF_A_COLUMN = 1 << 21  # bytes more for each of these columns: writers' pages have half of it
BLOCK_BYTES = 1 << 16  # the fewest bytes of a CSV that are read at a time
_BLOCK_MEMORY = 1 << 24  # arrow sets a block's size aside for every column that it reads
_BLOCK_LINES = 16  # a block has at least this many times the bytes of the file's first line
_BLOCK_ROWS = 1 << 14
_TEXT_BYTES = 1 << 24  # of a column of text in a batch
_NO_TABLE = (pa.ArrowException, PagesError, UnicodeError, OverflowError)
_NAME = 100  # characters of a column's name that are said
_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_WIDTH = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_DELTA_TEXTS = ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
_UNDATED: Mapping[str, str] = MappingProxyType({})
_FOOTER = {"thrift_string_size_limit": 1 << 26, "thrift_container_size_limit": 1 << 20}


def batches(
    path: Path, columns: list[str], form: TableForm = USUAL, dated: Mapping[str, str] = _UNDATED
) -> Iterator[pa.RecordBatch]:
    """Yield the `columns` of the table, some thousand rows at a time; its text is of this `form`.

    dated: how the run file writes the dates of a column, for sheets, which have dates by
    themselves. Raises DataError.
    """
    head = b""
    try:
        with opened(path) as file:
            head = file.read(4)
            file.seek(0)
            if head == b"PAR1":
                record_batches = _parquet(path, file, columns)
            elif head == EXCEL:
                record_batches = _excel(path, file, columns, form, dated)
            else:
                record_batches = _csv(path, columns, head, form)
            yield from record_batches
    except _NO_TABLE as error:
        raise DataError(
            f"{path.name}: {wrong(head, error, form)}"
        ) from error  # theirs quote values
    except OSError as error:
        raise DataError(f"{path.name}: {error.strerror or wrong(head, error, form)}") from error


def readable_columns(path: Path) -> tuple[list[str], dict[str, str]]:
    """Return the columns of a Parquet table that have one value a row, and why others are not read.

    Raises DataError.
    """
    try:
        with opened(path) as file, parquet.ParquetFile(file, **_FOOTER) as table:
            schema = table.schema_arrow
            check_count(path, len(schema.names))
    except _NO_TABLE as error:
        raise DataError(f"{path.name}: {wrong(b'PAR1', error)}") from error
    except OSError as error:
        raise DataError(f"{path.name}: {error.strerror or wrong(b'PAR1', error)}") from error
    nested = {
        field.name: f"is of {str(field.type)[:_NAME]}"
        for field in schema
        if pa.types.is_nested(field.type)
    }
    return [name for name in schema.names if name not in nested], nested


def _excel(
    path: Path, file: BufferedReader, columns: list[str], form: TableForm, dated: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    with excel_sheet(path, file, form, dated) as sheet:
        _all_there(path, columns, sheet.names, form)
        yield from sheet.batches(columns)


def wrong(head: bytes, error: Exception, form: TableForm = USUAL) -> str:
    """Return what is wrong with a table, without any value of it."""
    if not head:
        return "is empty"
    if head == b"PAR1":
        return "is not a whole Parquet table: it is damaged, or cut off"
    if isinstance(error, UnicodeError) or "invalid UTF8" in str(error):
        return not_in(form.encoding or "utf-8")
    if "straddl" in str(error):
        return "has a row that is larger than what is read at a time, or a quote that is not closed"
    return (
        "is not a whole table: a row has another number of columns, or is cut off; where cells "
        "hold the separator, they need quotes"
    )


def _parquet(path: Path, file: BufferedReader, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with parquet.ParquetFile(file, **_FOOTER) as table:
        _all_there(path, columns, table.schema_arrow.names, USUAL)
    yield from _batches_of(path, file, columns)


def _batches_of(path: Path, file: BufferedReader, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the columns' rows.

    Texts stay numbers in a list of texts until few are read at a time.
    """
    with parquet.ParquetFile(file, **_FOOTER) as table:
        schema = table.schema_arrow
        check_count(path, len(schema.names))
        _check_kinds(path, schema, columns)
        texts = [name for name in columns if _is_text(schema.field(name).type)]
        step = _check_pages(path, file, table.metadata, {name: name in texts for name in columns})
        deltas = _deltas(table.metadata)
    numbered = [name for name in texts if name not in deltas]
    with parquet.ParquetFile(file, read_dictionary=numbered, **_FOOTER) as table:
        for batch in table.iter_batches(step, columns=columns, use_threads=False):
            yield from _pieces(path, batch, texts)


def _deltas(metadata: Any) -> set[str]:
    """Return the columns of texts that are written as what follows a part of the text before.

    Spark's and DuckDB's second version of Parquet does. Arrow gives no list of such texts.
    """
    return {
        chunk.path_in_schema
        for group in range(metadata.num_row_groups)
        for chunk in map(metadata.row_group(group).column, range(metadata.num_columns))
        if set(chunk.encodings) & set(_DELTA_TEXTS)
    }


def _check_kinds(path: Path, schema: pa.Schema, columns: list[str]) -> None:
    for name in columns:
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise DataError(
                f"{path.name}: column {name[:_NAME]!r}: is of {str(kind)[:_NAME]}; expected one "
                "value a row"
            )


def _is_text(kind: Any) -> bool:
    """Check whether values of this kind may have any length."""
    if pa.types.is_dictionary(kind):
        of = kind.value_type
    else:
        of = kind
    return any(so(of) for so in _TEXTS)


def _check_pages(path: Path, file: BufferedReader, metadata: Any, columns: dict[str, bool]) -> int:
    """Return how many rows to read at a time. columns: whether they are texts.

    Raises DataError where a row group would be too large. Of numbers one page is unpacked at a
    time, of texts all of a row group may be in one batch. A text that is written as what follows a
    part of the one before may be as long as its page, in every row. Of such texts fewer rows are
    read at a time.
    """
    deltas = _deltas(metadata)
    longest = 1
    most = MOST_UNPACKED + _OF_A_COLUMN * len(columns)
    paths = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    groups = range(metadata.num_row_groups)
    check_apart(
        metadata.row_group(group).column(paths[name]) for group in groups for name in columns
    )
    for group in groups:
        row_group = metadata.row_group(group)
        sizes = dict.fromkeys(columns, 0)
        for name, text in columns.items():
            chunk = row_group.column(paths[name])
            pages = list(unpacked(file, chunk))
            if text:
                of_pages = sum(pages)
                if name in deltas:
                    longest = max(longest, *pages, 1)
            else:
                of_pages = max(pages, default=0)
            sizes[name] = max(of_pages, chunk.total_uncompressed_size * text)
        if sum(sizes.values()) > most:
            largest = max(sizes, key=sizes.__getitem__)
            raise DataError(
                f"{path.name}: row group {group} unpacks to {sum(sizes.values()):,} bytes at a "
                f"time, and {most:,} are allowed, most of them in column {largest[:_NAME]!r}; "
                "write it with smaller row groups and pages"
            )
    return max(1, min(_BLOCK_ROWS, _TEXT_BYTES // longest))


def _pieces(path: Path, batch: pa.RecordBatch, texts: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces of a few bytes of text each, with texts as such."""
    longest = 1
    for name in texts:
        values = batch.column(name)
        if pa.types.is_dictionary(values.type) and len(values.dictionary):
            longest = max(longest, pc.max(pc.binary_length(values.dictionary)).as_py() or 1)
        elif pa.types.is_string(values.type) or pa.types.is_binary(values.type):
            longest = max(longest, pc.max(pc.binary_length(values)).as_py() or 1)
        if longest > MOST_TEXT:
            raise DataError(
                f"{path.name}: column {name[:_NAME]!r}: a text of over {MOST_TEXT:,} bytes"
            )
    step = max(1, min(_BLOCK_ROWS, _TEXT_BYTES // longest))
    for first in range(0, batch.num_rows, step):
        piece = batch.slice(first, step)
        plain = [
            column.dictionary_decode()
            if name in texts and pa.types.is_dictionary(column.type)
            else column
            for name, column in zip(piece.schema.names, piece.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(plain, names=piece.schema.names)


def _csv(path: Path, columns: list[str], start: bytes, form: TableForm) -> Iterator[pa.RecordBatch]:
    for magic, what in OTHERS.items():
        if start.startswith(magic):
            raise DataError(f"{path.name}: is {what}, not a CSV, Parquet or Excel (.xlsx) table")
    if not start:
        raise DataError(f"{path.name}: is empty")
    head = csv_head(path, form, columns)
    _all_there(path, columns, head.names, form, head)
    reading = csv.ReadOptions(
        block_size=_block(path, len(columns)),
        use_threads=False,
        skip_rows=head.lines,
        column_names=[
            name if name in columns else f"\0{place}" for place, name in enumerate(head.names)
        ],
    )
    parsing = csv.ParseOptions(delimiter=head.separator, newlines_in_values=True)
    converting = csv.ConvertOptions(
        include_columns=columns,
        column_types={name: pa.string() for name in columns},
        strings_can_be_null=False,
    )
    try:
        with (
            utf8_file(path, head.encoding) as text,
            csv.open_csv(text, reading, parsing, converting) as reader,
        ):
            yield from reader
    except pa.ArrowInvalid as error:
        raise _of_width(path, head, error) from None


def _of_width(path: Path, head: CsvHead, error: Exception) -> Exception:
    """Return the error of a row with another number of cells, for its owner with its number."""
    where = _WIDTH.search(str(error))
    if where is None:
        return error
    row, expected, found = map(int, where.groups())
    what = f"{path.name}: is not a whole table: a row has another number of columns"
    return OwnersError(
        what,
        f"{what}: row {row - head.lines} of the data has {found} cells, and not {expected}; a cell "
        f"that holds {head.separator!r}, or the end of a line, needs quotes",
    )


def _block(path: Path, columns: int) -> int:
    """Return the bytes of a CSV to read at a time.

    A row must fit in, and a block a column in memory.
    """
    with opened(path) as file:
        line = len(file.readline(MOST_HEADER))
    return max(BLOCK_BYTES, _BLOCK_MEMORY // max(1, columns), _BLOCK_LINES * line)


def _all_there(
    path: Path, columns: list[str], names: list[str], form: TableForm, head: CsvHead | None = None
) -> None:
    """Raise DataError for a column that is not there once. Names that are like it are said.

    Others are not: where a file has no line of names, its first row would be.
    """
    lacking = [column for column in columns if names.count(column) != 1]
    for column in lacking:
        if column in names:
            raise DataError(
                f"{path.name}: {names.count(column)} columns are called {column!r}; rename all but "
                "one"
            )
        like = get_close_matches(column, names)
        if len(names) == 1 and len(columns) > 1 and head is not None:
            why = (
                f"; what parts its cells is read as {head.separator!r}: is that right? It is "
                "data.separator in the run file"
            )
        elif head is not None and any(_misread(name, head.encoding) == column for name in names):
            why = (
                f"; it is there in UTF-8, and data.encoding = {form.encoding!r} says another: save "
                "the file in that encoding, or all files as UTF-8"
            )
        elif like:
            why = f"; there is {', '.join(name[:_NAME] for name in like)}; rename it in the file"
        elif len(lacking) == len(columns):
            why = " (the first line of a CSV names its columns; where it does not: data.header = "
            why += "false)"
        else:
            why = "; add it to the file, or take it out of [data.columns]"
        raise DataError(f"{path.name}: column {column!r}: there is none among {len(names)}{why}")


def _misread(name: str, encoding: str) -> str:
    """Return a name whose UTF-8 was read in this encoding; "" for another."""
    try:
        return name.encode(encoding).decode()
    except UnicodeError:
        return ""


def names_in(path: Path, form: TableForm, needed: list[str]) -> list[str]:
    """Return the names of a table's columns, of which `needed` are read. Raises DataError."""
    with opened(path) as file:
        head = file.read(4)
        file.seek(0)
        if head == b"PAR1":
            return readable_columns(path)[0]
        if head == EXCEL:
            with excel_sheet(path, file, form, _UNDATED) as sheet:
                return sheet.names
    return csv_head(path, form, needed).names
