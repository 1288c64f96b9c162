"""How much memory the pages of a Parquet file take, by their own headers, before any is unpacked.

A page of some bytes may unpack to gigabytes, and what the file's footer says of it need not be so.
A reader unpacks a page whole. The headers are read in Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader
from typing import Any

_HEADERS = (1 << 9, 1 << 20)  # bytes of a header: of nearly all, and of one with long statistics
_DEEPEST = 16
_UNPACKED, _PACKED = 2, 3  # fields of a page's header: its bytes
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of a boolean, a byte, a float
_WHOLE = (4, 5, 6)
_BINARY, _LIST, _SET, _MAP, _STRUCT = 8, 9, 10, 11, 12


class PagesError(ValueError):
    """Bytes where a page's header is expected are none."""


def unpacked(file: BufferedReader, chunk: Any) -> Iterator[int]:
    """Yield the unpacked bytes of each page of a column chunk. Raises PagesError, OSError.

    chunk: pyarrow's ColumnChunkMetaData.
    """
    first = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        first = min(first, chunk.dictionary_page_offset)
    at, end = first, first + chunk.total_compressed_size
    if at < 0 or end < at:
        raise PagesError("a column chunk has a negative size")
    while at < end:
        fields, length = _header(file, at)
        sizes = fields.get(_UNPACKED, -1), fields.get(_PACKED, -1)
        if min(sizes) < 0:
            raise PagesError("a page has no size")
        yield sizes[0]
        at += length + sizes[1]


def _header(file: BufferedReader, at: int) -> tuple[dict[int, int], int]:
    """The numbers of a page's header, by field, and its length."""
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
        self._content, self.at = content, 0

    def fields(self, depth: int = 0) -> dict[int, int]:
        """The whole numbers of a struct, by the number of their field; the rest is passed over."""
        found: dict[int, int] = {}
        field = 0
        while head := self._byte():
            kind, step = head & 0x0F, head >> 4
            field = field + step if step else self._signed()
            found[field] = self._value(kind, depth)
        return found

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
        """How many there are in a list or a map, and of which kinds each consists."""
        if kind == _MAP:
            count = self._varint()
            head = self._byte() if count else 0
            return count, [head >> 4, head & 0x0F]
        head = self._byte()
        return head >> 4 if head >> 4 < 15 else self._varint(), [head & 0x0F]

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
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
            if shift > 63:
                raise PagesError("a page's header is damaged")

    def _signed(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _skip(self, count: int) -> None:
        if count > len(self._content) - self.at:
            raise PagesError("a page's header is cut off")
        self.at += count
