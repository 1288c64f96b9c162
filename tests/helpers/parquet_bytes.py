"""Parquet files made by hand, for what no library writes: sizes that lie, pages that are shared."""

from __future__ import annotations

import struct

_INT32, _INT64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_DOUBLE, _ZSTD, _PLAIN, _RLE = 5, 6, 0, 3  # as the format numbers types, codecs and encodings
_Field = tuple[int, int, bytes]  # number, type, value
_MAGIC = b"PAR1"


def page(unpacked: int, packed: int, values: int, more: bytes = b"") -> bytes:
    """Return the header of a page of numbers; `more` are fields of it."""
    header = _struct(
        (1, _INT32, _zigzag(values)),
        *((field, _INT32, _zigzag(kind)) for field, kind in ((2, _PLAIN), (3, _RLE), (4, _RLE))),
    )
    sizes = (2, _INT32, _zigzag(unpacked)), (3, _INT32, _zigzag(packed))
    return _struct((1, _INT32, _zigzag(0)), *sizes, (5, _STRUCT, header))[:-1] + more + b"\0"


def long_field(number: int, value: int) -> bytes:
    """Return a field of 64 bits, wherever it stands."""
    return bytes([_INT64]) + _zigzag(number) + _zigzag(value)


def table(columns: dict[str, bytes], rows: int, groups: int = 1) -> bytes:
    """Return a file of these pages, by column, which each row group has."""
    chunks, body = list[bytes](), b""
    for name, pages in columns.items():
        chunks.append(_chunk(name, len(_MAGIC + body), len(pages), rows))
        body += pages
    group = _struct(
        (1, _LIST, _list(_STRUCT, chunks)), (2, _INT64, _zigzag(50)), (3, _INT64, _zigzag(rows))
    )
    root = _struct((4, _BINARY, _text("schema")), (5, _INT32, _zigzag(len(columns))))
    leaves = [
        _struct((1, _INT32, _zigzag(_DOUBLE)), (3, _INT32, _zigzag(0)), (4, _BINARY, _text(name)))
        for name in columns
    ]
    foot = _struct(
        (1, _INT32, _zigzag(1)),
        (2, _LIST, _list(_STRUCT, [root, *leaves])),
        (3, _INT64, _zigzag(rows * groups)),
        (4, _LIST, _list(_STRUCT, [group] * groups)),
    )
    return _MAGIC + body + foot + struct.pack("<I", len(foot)) + _MAGIC


def _chunk(name: str, start: int, length: int, values: int) -> bytes:
    column = _struct(
        (1, _INT32, _zigzag(_DOUBLE)),
        (2, _LIST, _list(_INT32, [_zigzag(_PLAIN), _zigzag(_RLE)])),
        (3, _LIST, _list(_BINARY, [_text(name)])),
        (4, _INT32, _zigzag(_ZSTD)),
        (5, _INT64, _zigzag(values)),
        (6, _INT64, _zigzag(50)),
        (7, _INT64, _zigzag(length)),
        (9, _INT64, _zigzag(start)),
    )
    return _struct((2, _INT64, _zigzag(start)), (3, _STRUCT, column))


def _struct(*fields: _Field) -> bytes:
    """Return a struct with its fields in the order of their numbers, which are below 16."""
    last, content = 0, b""
    for number, kind, value in fields:
        content += bytes([(number - last) << 4 | kind]) + value
        last = number
    return content + b"\0"


def _list(kind: int, items: list[bytes]) -> bytes:
    return bytes([0xF0 | kind]) + _varint(len(items)) + b"".join(items)


def _text(content: str) -> bytes:
    return _varint(len(content)) + content.encode()


def _zigzag(value: int) -> bytes:
    return _varint(value << 1)


def _varint(value: int) -> bytes:
    content = b""
    while value > 0x7F:
        content += bytes([value & 0x7F | 0x80])
        value >>= 7
    return content + bytes([value])
