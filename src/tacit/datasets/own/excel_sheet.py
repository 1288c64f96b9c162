"""A sheet of an Excel workbook (.xlsx) as record batches: every cell a text, as a CSV has it.

Each cell is written as the table's form has numbers, and as the run file has dates, so that `cells`
reads it as it reads a CSV's. Of a formula the stored value counts, and nothing is computed.
"""

from __future__ import annotations

import datetime
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

import pyarrow as pa

from tacit.datasets.own.csv_head import MOST_COLUMNS, check_count
from tacit.datasets.own.days import written_day
from tacit.datasets.own.excel_parts import MOST_ROWS, PartsError, check_parts
from tacit.datasets.own.table_form import TableForm
from tacit.errors import DataError

EXCEL = b"PK\x03\x04"  # a zip
_HEAD_ROWS = 1000  # the names of the columns are in one of these
_ROWS = 1 << 12  # of a batch
_CELLS = 1 << 18  # of a batch
_WHOLE = 2.0**53
# What openpyxl ends in at damaged files: a part, an index or a number out of its place.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ExpatError,
    OSError,
    SyntaxError,
    EOFError,
    KeyError,
    IndexError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
    RuntimeError,  # also an encrypted part, one packed in an unknown way, and too deep a tree
    AssertionError,
)


class ExcelSheet:
    """The sheet of an open workbook that `form` names, or its only one.

    names: of its columns, in their order. dated: of columns of dates, how the run file writes them.
    """

    def __init__(self, path: Path, sheet: Any, form: TableForm, dated: Mapping[str, str]) -> None:
        self._sheet = sheet
        self._form = form
        self._dated = dated
        self._path = path
        head = next(self._rows(MOST_COLUMNS + 1, _HEAD_ROWS), [])
        last = max((place for place, cell in enumerate(head) if cell is not None), default=-1)
        check_count(path, last + 1)
        if last < 0:
            raise DataError(f"{path.name}: its sheet is empty")
        if form.header:
            self.names = [_text(cell, "", form).strip() for cell in head[: last + 1]]
        else:
            self.names = [str(place + 1) for place in range(last + 1)]

    def records(self) -> Iterator[list[str]]:
        """Yield the cells of each row that has some, the names' among them, as text."""
        for row in self._rows(len(self.names)):
            yield [
                _text(cell, self._dated.get(name, ""), self._form)
                for name, cell in zip(self.names, row, strict=True)
            ]

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `columns`, of which each is there once."""
        places = [self.names.index(name) for name in columns]
        patterns = [self._dated.get(name, "") for name in columns]
        step = max(1, min(_ROWS, _CELLS // max(1, len(columns))))
        rows = self._rows(len(self.names))
        if self._form.header:
            next(rows)
        collected: list[list[str]] = [[] for _ in columns]
        for row in rows:
            for cells, place, pattern in zip(collected, places, patterns, strict=True):
                cells.append(_text(row[place], pattern, self._form))
            if collected and len(collected[0]) == step:
                yield _batch(columns, collected)
                collected = [[] for _ in columns]
        if collected and collected[0]:
            yield _batch(columns, collected)

    def _rows(self, width: int, last: int = MOST_ROWS) -> Iterator[list[Any]]:
        """Yield the cells of each row that has some. last: where no row after it is looked at."""
        for row in self._sheet.iter_rows(max_row=last, max_col=width, values_only=True):
            if any(cell is not None and cell != "" for cell in row):
                yield list(row)


@contextmanager
def excel_sheet(
    path: Path, file: BufferedReader, form: TableForm, dated: Mapping[str, str]
) -> Iterator[ExcelSheet]:
    """Open the workbook in `file`. Raises DataError, also for a damaged one while it is read."""
    if find_spec("openpyxl") is None:
        raise DataError(
            f"{path.name}: is a zip, as Excel's tables are, and they need openpyxl; pip install "
            "'tacit[excel]'"
        )
    from openpyxl import load_workbook

    try:
        with zipfile.ZipFile(file) as archive:
            if "[Content_Types].xml" not in archive.namelist():
                raise DataError(f"{path.name}: is a zip, not a CSV, Parquet or Excel table")
            check_parts(archive)
        file.seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that openpyxl does not read, as drawings
            book = load_workbook(file, read_only=True, data_only=True, keep_links=False)
            yield ExcelSheet(path, _chosen(path, book, form.sheet), form, dated)
    except DataError:
        raise
    except PartsError as error:
        raise DataError(f"{path.name}: {error}") from error
    except _DAMAGED as error:
        raise DataError(
            f"{path.name}: is no whole Excel workbook (.xlsx): it is damaged, or of another kind"
        ) from error


def _chosen(path: Path, book: Any, name: str | None) -> Any:
    """Return the sheet called `name`, or the only one that is shown. Raises DataError."""
    if name is not None:
        for sheet in book.worksheets:
            if sheet.title == name:
                return sheet
        raise DataError(f"{path.name}: has no sheet called {name!r} (data.sheet)")
    shown = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
    if len(shown) != 1:
        raise DataError(
            f'{path.name}: has {len(shown)} sheets; say which is read: data.sheet = "…", or '
            "tacit new --sheet"
        )
    return shown[0]


def _batch(columns: list[str], collected: list[list[str]]) -> pa.RecordBatch:
    arrays = [pa.array(cells, pa.string()) for cells in collected]
    return pa.RecordBatch.from_arrays(arrays, names=columns)


def _text(cell: Any, pattern: str, form: TableForm) -> str:
    """Return a cell as a CSV of this form has it. pattern: of a column of dates."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) <= _WHOLE:
        return str(int(cell))
    if isinstance(cell, int | float):
        return str(cell).replace(".", form.decimal)
    if isinstance(cell, datetime.datetime):
        return _day_text(cell, pattern)
    if isinstance(cell, datetime.timedelta):
        return _text(cell.total_seconds(), "", form)
    if isinstance(cell, datetime.time):
        since = datetime.datetime.combine(datetime.date.min, cell) - datetime.datetime.min
        return _text(since.total_seconds(), "", form)
    return str(cell)


def _day_text(moment: datetime.datetime, pattern: str) -> str:
    """Return a day as `pattern` writes it, where that says it whole; else as ISO 8601 does."""
    if pattern:
        written = moment.strftime(pattern)
        if written_day(written, pattern) == moment.date():
            return written
    if moment.time() == datetime.time():
        return moment.date().isoformat()
    return moment.isoformat(sep=" ", timespec="seconds")
