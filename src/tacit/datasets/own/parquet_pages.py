"""How much memory the pages of a Parquet file take, by their own headers, before any is unpacked.

A page of some bytes may unpack to gigabytes, and what the file's footer says of it need not be so.
A reader unpacks a page whole. The headers are read in Thrift's compact protocol, as arrow reads
them. arrow passes over a field of another type than it expects. So a size of another type is
refused, and a field that comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BufferedReader
from typing import Any

_HEADERS = (1 << 9, 1 << 20)  # bytes of a header: of nearly all, and of one with long statistics
_DEEPEST = 16
# fields of a page's header: its bytes
_UNPACKED = 2
_PACKED = 3
_MOST = (1 << 31) - 1  # of these two, which have 32 bits
_MOST_EMPTY = 2  # pages without a byte in a chunk: writers put down an empty dictionary
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of a boolean, a byte, a float
_WHOLE = (4, 5, 6)
_INT32 = 5
_BINARY = 8
_LIST = 9
_SET = 10
_MAP = 11
_STRUCT = 12

_Fields = dict[int, tuple[int, int]]  # by number: type and value


class PagesError(ValueError):
    """Bytes where a page's header is expected are none."""


def unpacked(file: BufferedReader, chunk: Any) -> Iterator[int]:
    """Yield the unpacked bytes of each page of a column chunk. Raises PagesError, OSError.

    chunk: pyarrow's ColumnChunkMetaData.
    """
    at, end = _span(chunk)
    empty = 0
    while at < end:
        fields, length = _header(file, at)
        unpacks = _size(fields, _UNPACKED)
        packed = _size(fields, _PACKED)
        empty += unpacks == 0
        if empty > _MOST_EMPTY:
            raise PagesError("a column chunk has empty pages")
        yield unpacks
        at += length + packed


def check_apart(chunks: Iterable[Any]) -> None:
    """Raise PagesError where two of these column chunks share bytes of the file.

    So the time to read all headers is bounded by the length of the file.
    """
    last = 0
    for first, end in sorted(_span(chunk) for chunk in chunks if chunk.num_values > 0):
        if first < last:
            raise PagesError("two column chunks share pages")
        last = end


def _span(chunk: Any) -> tuple[int, int]:
    """Return where a chunk begins and ends; of one without values nothing is read."""
    first = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset
    if chunk.num_values <= 0:
        return first, first
    if dictionary is not None and 0 < dictionary < first:
        first = dictionary
    if first < 0 or chunk.total_compressed_size < 0:
        raise PagesError("a column chunk has a negative size")
    return first, first + chunk.total_compressed_size


def _size(fields: _Fields, field: int) -> int:
    """Return a page's number of bytes, by its header."""
    kind, size = fields.get(field, (_INT32, -1))
    if kind != _INT32 or not 0 <= size <= _MOST:
        raise PagesError("a page has no size")
    return size


def _header(file: BufferedReader, at: int) -> tuple[_Fields, int]:
    """Return the fields of a page's header, and its length."""
    for most in _HEADERS:
        file.seek(at)
        header = _Compact(file.read(most))
        try:
            return header.fields(), header.at
        except PagesError:
            if most == _HEADERS[-1]:
                raise
    raise AssertionError  # the last one returns or raises


class _Compact:
    """Reads one struct of Thrift's compact protocol."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def fields(self, depth: int = 0) -> _Fields:
        """Return the types and values of a struct, by field number; 0 for no whole number."""
        values: _Fields = {}
        field = 0
        while head := self._byte():
            kind = head & 0x0F
            step = head >> 4
            if step:
                field = field + step
            else:
                field = self._signed()
            if field in values:
                raise PagesError("a page's header has a field twice")
            values[field] = kind, self._value(kind, depth)
        return values

    def _value(self, kind: int, depth: int, *, inside: bool = False) -> int:
        if depth > _DEEPEST:
            raise PagesError("a page's header is too deep")
        if kind in _WHOLE:
            return self._signed()
        if kind in _FIXED:  # true and false: as a field they are in its head
            self._skip(1 if inside and kind in (1, 2) else _FIXED[kind])
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind in (_LIST, _SET, _MAP):
            self._several(*self._of_many(kind), depth)
        elif kind == _STRUCT:
            self.fields(depth + 1)
        else:
            raise PagesError("a page's header is damaged")
        return 0

    def _of_many(self, kind: int) -> tuple[int, list[int]]:
        """Return the length of a list or a map, and the kinds of each entry."""
        if kind == _MAP:
            count = self._varint()
            head = self._byte() if count else 0
            return count, [head >> 4, head & 0x0F]
        head = self._byte()
        length = head >> 4
        if length == 15:  # too long for its half of a byte
            length = self._varint()
        return length, [head & 0x0F]

    def _several(self, count: int, kinds: list[int], depth: int) -> None:
        if count > len(self._content):
            raise PagesError("a page's header is damaged")
        for _ in range(count):
            for kind in kinds:
                self._value(kind, depth + 1, inside=True)

    def _byte(self) -> int:
        if self.at >= len(self._content):
            raise PagesError("a page's header is cut off")
        self.at += 1
        return self._content[self.at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 63:
                raise PagesError("a page's header is damaged")

    def _signed(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _skip(self, count: int) -> None:
        if count > len(self._content) - self.at:
            raise PagesError("a page's header is cut off")
        self.at += count
