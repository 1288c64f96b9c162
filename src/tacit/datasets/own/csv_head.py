"""The head of a CSV: its encoding, its separator and its columns' names, before any row is read.

All of it follows from the header, which is public, and never from rows. The separator is the one
that gives the header the columns that the run file names.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tacit.datasets.own.table_form import SEPARATORS, TableForm, encoding_called
from tacit.errors import DataError
from tacit.regular_file import opened

MOST_COLUMNS = 16_384  # of a table, read or not: arrow takes some memory for each column of a CSV
MOST_HEADER = 1 << 20  # bytes of the first line of a CSV
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BLANK_QUOTE = re.compile(r"\s+\"")
_SEP = re.compile(r"sep=(.)\s*", re.I)  # what a spreadsheet writes first


@dataclass(frozen=True, slots=True)
class CsvHead:
    """The head of a CSV.

    names: of its columns, in their order, with one more for a separator at each row's end. lines:
    how many lines of the file are no rows. encoding: as Python calls it.
    """

    names: list[str]
    lines: int
    separator: str
    encoding: str


def csv_head(path: Path, form: TableForm, needed: list[str]) -> CsvHead:
    """Return the head of the CSV at `path`, of which the columns `needed` are to be read.

    Raises DataError, OSError.
    """
    encoding, lines = text_lines(path, form.encoding)
    lines, passed, separator = _after_preamble(lines, form, needed)
    if not lines:
        raise DataError(f"{path.name}: is empty")
    if separator is None:
        separator = _separator(lines, needed)
    records = _records(lines, separator)
    head, used = next(records, ([], 0))
    check_count(path, len(head))
    row, _ = next(records, (head, 0))
    if any(_BLANK_QUOTE.match(cell) for cell in (*head, *row)):
        raise DataError(
            f"{path.name}: has a blank before a quote, which would make the quote a letter; take "
            "such blanks out"
        )
    if form.header:
        names = _trimmed(head, needed)
    else:
        names, used, row = [str(place + 1) for place in range(len(head))], 0, head
    if len(row) == len(names) + 1 and not row[-1].strip():
        names.append("")  # a separator at the end of each row
    elif len(row) == len(names) - 1 and not names[-1]:
        names.pop()  # one at the end of the header alone
    return CsvHead(names, passed + used, separator, encoding)


def _trimmed(names: list[str], needed: list[str]) -> list[str]:
    return [name if name in needed else name.strip() for name in names]


def text_lines(path: Path, stated: str | None) -> tuple[str, list[str]]:
    """Return the encoding and the first lines of the file, with their ends; some MiB at most.

    Raises DataError, OSError.
    """
    with opened(path) as file:
        head = file.read(MOST_HEADER + 2)
        whole = not file.read(1)
    encoding = _encoding(path, head, stated)
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        text = decoder.decode(head, final=whole)
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name}: {not_in(encoding)}") from error
    if "\0" in text:
        raise DataError(f"{path.name}: {not_in(encoding)}")
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)
    first = next((line for line in lines if line.strip()), "")
    if len(first) > MOST_HEADER or (not whole and len(lines) == 1):
        raise DataError(f"{path.name}: its first line has more than {MOST_HEADER:,} bytes")
    check_count(path, max(map(first.count, SEPARATORS)) + 1)
    return encoding, lines


def not_in(encoding: str) -> str:
    """Return what is wrong with a file that is not in this encoding."""
    if encoding.lower().replace("_", "-").startswith("utf-8"):
        return (
            'is not UTF-8 text; save it as UTF-8, or state data.encoding, as "cp1252" (Windows, '
            'Latin-1) or "utf-16"'
        )
    return f'is not text in the encoding {encoding}; state data.encoding, as "utf-8"'


def looks_like_utf8(path: Path, form: TableForm) -> bool:
    """Check whether a text that is read in a stated encoding of one byte a letter is UTF-8.

    Then each of its accents is read as two letters. Raises OSError.
    """
    stated = form.encoding
    if stated is None or stated.lower().replace("_", "-").startswith(("utf", "u8", "u16", "u32")):
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    accents = False
    with opened(path) as file:
        while block := file.read(MOST_HEADER):
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                return False
            accents = accents or not block.isascii()
    return accents


def check_count(path: Path, count: int) -> None:
    """Raise DataError for more columns than are read."""
    if count > MOST_COLUMNS:
        raise DataError(
            f"{path.name}: has {count:,} columns, and a table may have {MOST_COLUMNS:,}; keep "
            "those that are learnt from, or read it as arrays"
        )


def _encoding(path: Path, head: bytes, stated: str | None) -> str:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    try:
        return encoding_called(stated or "utf-8")
    except ValueError as error:
        raise DataError(f"{path.name}: data.encoding={stated!r}: {error}") from error


def _after_preamble(
    lines: list[str], form: TableForm, needed: list[str]
) -> tuple[list[str], int, str | None]:
    """Return the lines from the header on, how many came before it, and a separator they state.

    Before it may be empty lines, comments that begin with #, and a spreadsheet's sep=;
    """
    separator = form.separator
    passed = 0
    for line in lines:
        stated = _SEP.fullmatch(line.strip("\r\n"))
        if stated:
            separator = separator or stated[1]
        elif line.strip() and not (line.startswith("#") and not _names(line, needed)):
            break
        passed += 1
    return lines[passed:], passed, separator


def _names(line: str, needed: list[str]) -> bool:
    """Check whether this line, which begins with #, has the names of all columns needed."""
    return any(set(needed) <= set(_record(line, separator)) for separator in SEPARATORS if needed)


def _separator(lines: list[str], needed: list[str]) -> str:
    """Return the separator that gives the header most of the names that are needed."""

    def known(separator: str) -> int:
        head = [name.strip() for name in _record("".join(lines[:8]), separator)]
        return len(set(needed) & set(head))

    return max(SEPARATORS, key=known)  # the first of the best: the comma


def _record(text: str, separator: str) -> list[str]:
    return next(iter(csv.reader(io.StringIO(text, newline=""), delimiter=separator)), [])


def _records(lines: list[str], separator: str) -> Iterator[tuple[list[str], int]]:
    """Yield the cells of each record that has some, and how many lines were read until then."""
    reader = csv.reader(lines, delimiter=separator)
    try:
        for record in reader:
            if record:
                yield record, reader.line_num
    except csv.Error:
        return
