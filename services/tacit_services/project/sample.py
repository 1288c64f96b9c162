"""Reads a public sample of a table, and finds the form that its text has.

What is found is written into the run file, where everybody sees it. Nothing is found of private
rows: those are read by what the run file says.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pyarrow as pa

from tacit.datasets.own.cells import texts
from tacit.datasets.own.csv_head import csv_head, text_lines
from tacit.datasets.own.excel_sheet import EXCEL, excel_sheet
from tacit.datasets.own.file_reading import OTHERS
from tacit.datasets.own.table_file import batches, readable_columns
from tacit.datasets.own.table_form import NO_NUMBER, SEPARATORS, TableForm
from tacit.errors import DataError, OwnersError
from tacit.regular_file import opened
from tacit_services.project.draft import StatedForm

_SAMPLE_ROWS = 200_000
_LOOKED_AT = 200  # records that tell the form
_NO_HEADER = (
    "its first line looks like a row: columns are called 1, 2, 3, … (data.header = false); where "
    "it names them: --header"
)
_ENOUGH = 0.95  # of a column's cells that are numbers, so that it is one of numbers


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample's rows: of text, or of types as a Parquet has them.

    form: of the text. passed_over: columns that hold no values, and why. remarks: what was found.
    """

    columns: dict[str, pa.ChunkedArray]
    rows: int
    form: TableForm
    passed_over: dict[str, str]
    remarks: tuple[str, ...]


def read_sample(path: Path, stated: StatedForm) -> Sample:
    """Return the rows of the public table at `path`, some hundred thousand at most.

    Raises DataError.
    """
    try:
        with opened(path) as file:
            start = file.read(4)
    except OSError as error:
        raise DataError(f"--table {path}: {error.strerror or 'cannot be read'}") from error
    try:
        remarks: list[str] = []
        passed_over: dict[str, str] = {}
        if start == b"PAR1":
            names, passed_over = readable_columns(path)
            form = TableForm()
        elif start == EXCEL:
            form, names = _sheet_form(path, stated, remarks)
        else:
            form = _form(path, start, stated, remarks)
            names = csv_head(path, form, []).names
        _refuse_twice(path, names)
        columns, rows = _rows(path, [name for name in names if name], form)
        if start != b"PAR1":
            form = _with_numbers(columns, form, stated, remarks)
        if start == EXCEL and not form.plain_numbers:  # a sheet's own numbers are written so, too
            columns, rows = _rows(path, [name for name in names if name], form)
    except OwnersError as error:  # it is public, so all of it may be said
        raise DataError(f"--table {error.for_owner}") from error
    except DataError as error:
        raise DataError(f"--table {error}") from error
    if "" in names and any(names):
        passed_over[""] = "has no name: it numbers the rows, or nothing is in it"
    return Sample(columns, rows, form, passed_over, tuple(remarks))


def _rows(path: Path, names: list[str], form: TableForm) -> tuple[dict[str, pa.ChunkedArray], int]:
    pieces: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches(path, names, form):
        pieces.append(batch.slice(0, _SAMPLE_ROWS - rows))
        rows += pieces[-1].num_rows
        if rows >= _SAMPLE_ROWS:
            break
    if not rows:
        raise DataError(f"{path.name}: has no rows")
    table = pa.Table.from_batches(pieces)
    return {name: table.column(name) for name in names}, rows


def _refuse_twice(path: Path, names: list[str]) -> None:
    for name, count in Counter(names).items():
        if name and count > 1:
            raise DataError(
                f"{path.name}: two columns are called {name!r}; rename one, or if the first line "
                "has no names say --no-header"
            )


# -- the form of a CSV ---------------------------------------------------------------------------


def _sheet_form(path: Path, stated: StatedForm, remarks: list[str]) -> tuple[TableForm, list[str]]:
    """Return the form of a workbook's sheet, and its columns' names."""
    form = TableForm(sheet=stated.sheet)
    with opened(path) as file, excel_sheet(path, file, form, {}) as sheet:
        records = list(islice(sheet.records(), _LOOKED_AT))
        header = stated.header
        if header is None:
            header = not _looks_like_a_row(records, TableForm().number)
            if not header:
                remarks.append(_NO_HEADER)
        names = sheet.names
    if header:
        return form, names
    return replace(form, header=False), [str(place + 1) for place in range(len(names))]


def _form(path: Path, start: bytes, stated: StatedForm, remarks: list[str]) -> TableForm:
    for magic, what in OTHERS.items():
        if start.startswith(magic):
            raise DataError(f"{path.name}: is {what}, not a CSV, Parquet or Excel (.xlsx) table")
    if not start:
        raise DataError(f"{path.name}: is empty")
    encoding = stated.encoding or _encoding(path)
    if encoding is not None and stated.encoding is None:
        remarks.append(f"read as {encoding} (data.encoding); where letters look wrong: --encoding")
    _, lines = text_lines(path, encoding)
    separator = stated.separator or _separator(lines)
    if stated.separator is None and separator != ",":
        remarks.append(
            f"cells are parted by {separator!r} (data.separator); where that is wrong: --separator"
        )
    elif stated.separator is not None:
        _check_separator(path, lines, stated.separator)
    form = TableForm(separator=separator, encoding=encoding)
    if separator == ",":
        form = replace(form, separator=None)
    header = stated.header
    if header is None:
        header = not _begins_with_a_row(lines, csv_head(path, form, []).lines, separator)
        if not header:
            remarks.append(_NO_HEADER)
    return replace(form, header=header)


def _check_separator(path: Path, lines: list[str], separator: str) -> None:
    """Raise DataError where this separator parts no cells, and another does."""
    first = next(_records(lines, separator), [])
    better = _separator(lines)
    others = len(next(_records(lines, better), []))
    if len(first) == 1 < others:
        raise DataError(
            f"{path.name}: --separator {separator!r} gives one column, and {better!r} gives "
            f"{others}: say --separator {better!r}, or leave it out"
        )


def _encoding(path: Path) -> str | None:
    """Return the encoding of a file whose text is not UTF-8 and has no byte order mark."""
    with opened(path) as file:
        head = file.read(1 << 20)
        while block := file.read(1 << 20):
            if not block.isascii():
                head += block
                break
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return None
    zeros = head[:4000].count(0)
    if zeros > len(head[:4000]) / 4:
        return "utf-16-le" if head[1] == 0 else "utf-16-be"
    for end in range(4):  # a letter of several bytes may be cut off
        try:
            head[: len(head) - end].decode()
        except UnicodeDecodeError:
            continue
        return None
    try:
        head.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _separator(lines: list[str]) -> str:
    """Return the separator that parts most lines alike, into most cells."""

    def score(separator: str) -> tuple[float, int]:
        records = list(_records(lines, separator))
        width = Counter(map(len, records[1:] or records)).most_common(1)[0][0] if records else 1
        alike = sum(len(record) in (width, width - 1) for record in records)
        if width < 2:
            return 0.0, 1
        return alike / len(records), width

    return max(SEPARATORS, key=score)


def _records(lines: list[str], separator: str) -> Iterator[list[str]]:
    text = [line for line in lines if not line.startswith("#")]
    reader = csv.reader(text, delimiter=separator)
    try:
        for number, record in enumerate(filter(None, reader)):
            if number > _LOOKED_AT:
                return
            yield record
    except csv.Error:
        return


def _begins_with_a_row(lines: list[str], head_lines: int, separator: str) -> bool:
    number = TableForm(decimal=",").number if separator != "," else TableForm().number
    records = list(_records(lines[max(0, head_lines - 1) :], separator))
    return _looks_like_a_row(records, number)


def _looks_like_a_row(records: list[list[str]], number: Callable[[str], float | None]) -> bool:
    """Check whether each cell of the first record is like those below it, and one is a number."""
    if len(records) < 3:
        return False
    head, *rows = records
    numbers = [number(cell.strip()) is not None for cell in head]
    if head == [str(place) for place in range(len(head))] or not any(numbers):
        return False
    for place, cell in enumerate(head):
        below = [row[place].strip() for row in rows if len(row) > place]
        if numbers[place] and cell.strip():
            if sum(number(text) is None for text in below) > len(below) / 20:
                return False
        elif cell.strip() not in below:
            return False
    return True


# -- how its numbers are written -----------------------------------------------------------------


def _with_numbers(
    columns: dict[str, pa.ChunkedArray], form: TableForm, stated: StatedForm, remarks: list[str]
) -> TableForm:
    """Return `form` with the decimal mark and the thousands mark that make most columns numbers."""
    words = [_some_words(column) for column in columns.values()]
    if stated.decimal is not None:
        marks = [(stated.decimal, ""), (stated.decimal, "." if stated.decimal == "," else ",")]
    elif form.separator in (None, ","):
        marks = [(".", ""), (".", ","), (",", ""), (",", ".")]
    else:
        marks = [(".", ""), (",", ""), (",", "."), (",", " "), (".", ","), (".", " ")]
    candidates = [replace(form, decimal=decimal, thousands=mark) for decimal, mark in marks]

    def fitting(candidate: TableForm) -> int:
        return sum(_of_numbers(each, candidate) for each in words)

    best = max(candidates, key=fitting)
    if not best.plain_numbers and stated.decimal is None:
        between = f", thousands with {best.thousands!r}" if best.thousands else ""
        remarks.append(
            f"numbers are read with the decimal mark {best.decimal!r}{between}; where that is "
            "wrong: --decimal"
        )
    if stated.decimal is not None:
        other = "." if stated.decimal == "," else ","
        more = fitting(replace(form, decimal=other)) - fitting(best)
        if more > 0:
            remarks.append(
                f"--decimal {stated.decimal!r}: with {other!r}, {more} more columns would be of "
                "numbers"
            )
    return best


def _some_words(column: pa.ChunkedArray) -> list[str]:
    text = texts(column.slice(0, 5000).combine_chunks()).values
    return list(text.drop_null().unique().to_pylist()[: _LOOKED_AT * 5])


def _of_numbers(words: list[str], form: TableForm) -> bool:
    written = [word for word in words if word.casefold() not in NO_NUMBER]
    read = sum(form.number(word) is not None for word in written)
    return bool(written) and read >= _ENOUGH * len(written)
