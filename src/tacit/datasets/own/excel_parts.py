"""The parts of an Excel workbook, looked at before a library builds anything of them.

A workbook is a zip of XML. Public numbers bound it: bytes, elements of a row, the length of a text.
It has no entities of its own. This look takes little memory, and what the library then builds is
bounded, too.
"""

from __future__ import annotations

import zipfile
from typing import IO
from xml.parsers import expat

MOST_PARTS = 10_000
MOST_BYTES = 1 << 28  # of all parts, unpacked
MOST_ROWS = 1_048_576  # of a sheet, as Excel has it
_MOST_APART = 1 << 21  # elements of a part that are in no row
_MOST_IN_ROW = 1 << 18
_MOST_DEEP = 64
_MOST_TEXT = 1 << 20  # characters of one text
_PIECE = 1 << 16


class PartsError(ValueError):
    """A workbook says more than is read, or something that none says."""


def check_parts(archive: zipfile.ZipFile) -> None:
    """Raise PartsError, or what a damaged zip or XML ends in, for a workbook that is not read."""
    parts = archive.infolist()
    if len(parts) > MOST_PARTS or sum(part.file_size for part in parts) > MOST_BYTES:
        raise PartsError(
            f"unpacks to more than {MOST_BYTES:,} bytes, or has more than {MOST_PARTS:,} parts; "
            "save the sheet as CSV or Parquet"
        )
    for part in parts:
        if part.filename.endswith((".xml", ".rels")):
            with archive.open(part) as file:
                _Part().read(file)


class _Part:
    """Reads one part. A row's elements are counted by row, as a reader lets go of each."""

    def __init__(self) -> None:
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._depth = 0
        self._apart = 0
        self._in_row = 0
        self._last_row = 0
        self._row = False
        self._length = 0
        self._computed = False
        self._has_value = False
        self._inside = ""

    def read(self, file: IO[bytes]) -> None:
        while piece := file.read(_PIECE):
            self._parser.Parse(piece, False)
        self._parser.Parse(b"", True)

    def _doctype(self, *_: object) -> None:
        raise PartsError("has a document type of its own, which no spreadsheet program writes")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        element = name.rpartition(" ")[2]
        self._depth += 1
        self._length = 0
        self._inside = element
        if element == "row":
            self._begin_row(attributes.get("r"))
        elif element == "c":
            self._computed = False
            self._has_value = attributes.get("t") == "str"
        elif element == "f":
            self._computed = True
        if self._row:
            self._in_row += 1
        else:
            self._apart += 1
        if (
            self._depth > _MOST_DEEP
            or self._in_row > _MOST_IN_ROW
            or self._apart > _MOST_APART
            or self._last_row > MOST_ROWS
        ):
            raise PartsError("has more cells in a row, or more rows, than are read")

    def _begin_row(self, number: str | None) -> None:
        if number is None:
            place = self._last_row + 1
        else:
            place = int(number)
        if place <= self._last_row:
            raise PartsError("has rows that are not in order")
        self._last_row = place
        self._row = True
        self._in_row = 0
        self._apart += 1

    def _end(self, name: str) -> None:
        element = name.rpartition(" ")[2]
        self._depth -= 1
        self._inside = ""
        if element == "row":
            self._row = False
        elif element == "c" and self._computed and not self._has_value:
            raise PartsError(
                "has a formula whose value is not stored; open it in a spreadsheet program, and "
                "save it"
            )

    def _text(self, text: str) -> None:
        self._length += len(text)
        if self._length > _MOST_TEXT:
            raise PartsError(f"has a text of over {_MOST_TEXT:,} characters")
        if self._inside == "v":
            self._has_value = True
