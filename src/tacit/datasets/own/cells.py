"""A table's cell, read by its value: the same for a sample, training, prediction, CSV and Parquet.

A cell has one text: blanks around it are gone, 7.0 and 7.50 are 7 and 7.5, TRUE is true. A cell is
missing where it is empty, null, or one of a few words. How a cell is read depends on that cell and
on public constants alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tacit.datasets.own.days import written_day
from tacit.datasets.own.table_form import MISSING_WORDS, TableForm, hint

_DECIMAL = re.compile(r"([+-]?[0-9]+)\.([0-9]*?)0*")
Mask = npt.NDArray[np.bool_]
Floats64 = npt.NDArray[np.float64]
_ARROW = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of a column (n,): `values`, and which of them cannot be read.

    values: text with null where a cell is missing, or float64 with nan. unread: a mask. why: what
    they were expected to be. hint: what would help, for the owner's screen.
    """

    values: Any
    unread: Mask
    why: str = ""
    hint: str = ""


def by_value(text: str) -> str:
    """Return the one text of what `text` writes.

    >>> by_value(" 7.0"), by_value("7.50"), by_value("TRUE"), by_value("007"), by_value("x ")
    ('7', '7.5', 'true', '007', 'x')
    """
    trimmed = text.strip()
    if trimmed.casefold() in ("true", "false"):
        return trimmed.casefold()
    number = _DECIMAL.fullmatch(trimmed)
    if number:
        return number[1] + (f".{number[2]}" if number[2] else "")
    return trimmed


def texts(values: pa.Array, missing: Iterable[str] = MISSING_WORDS) -> Cells:
    """Return text, trimmed; null where a cell is empty or one of the words `missing`."""
    try:
        text = _decoded(values).cast(pa.string())
        unread = np.zeros(len(values), np.bool_)
    except _ARROW:
        text, unread = _texts_singly(values)
    text = pc.utf8_trim_whitespace(text)
    absent = pc.is_in(text, value_set=pa.array(sorted({*missing, ""}), pa.string()))
    text = pc.if_else(absent, None, text)
    return Cells(text, unread, f"expected text, found {values.type}")


def numbers(values: pa.Array, form: TableForm, codes: tuple[str, ...] = ()) -> Cells:
    """Return float64, nan where a cell is missing or one of `codes`, or writes no number."""
    plain = _decoded(values)
    if _is_text(plain.type):
        cells = _written_numbers(plain, form, frozenset(map(by_value, codes)))
    else:
        cells = _typed_numbers(plain)
    absent = [form.number(code) for code in codes]
    coded = [number for number in absent if number is not None]
    cells.values[np.isin(cells.values, coded)] = np.nan
    return cells


def dates(values: pa.Array, pattern: str, codes: tuple[str, ...] = ()) -> Cells:
    """Return a list of dates, None where a cell is missing; a text is read by `pattern`."""
    kind = values.type
    if pa.types.is_timestamp(kind) and kind.tz:
        values = pc.local_timestamp(values)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        days = values.cast(pa.date32(), safe=False).to_pylist()  # the hour is not read
        return Cells(days, np.zeros(len(days), np.bool_))
    read = texts(values, MISSING_WORDS | set(codes))
    encoded = read.values.dictionary_encode()
    parsed = [written_day(text, pattern) for text in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(parsed)).to_numpy(zero_copy_only=False)
    of_each = [*parsed, None]
    unread = read.unread | np.array([*(date is None for date in parsed), False])[places]
    pattern_words = f"expected dates as {pattern}, found {kind}"
    return Cells([of_each[place] for place in places], unread, pattern_words)


def each_text(text: pa.Array, of: Callable[[str], int], absent: int) -> npt.NDArray[np.int64]:
    """Return `of` each text (n,), asked once for each different one; `absent` for null."""
    encoded = text.dictionary_encode()
    answers = np.array([*map(of, encoded.dictionary.to_pylist()), absent], np.int64)
    places = encoded.indices.fill_null(len(answers) - 1).to_numpy(zero_copy_only=False)
    result: npt.NDArray[np.int64] = answers[places]
    return result


def _decoded(values: pa.Array) -> pa.Array:
    """Return the values themselves, where a file has numbers of a list of values."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_fixed_size_binary(values.type):
        return values.cast(pa.binary())
    return values


def _is_text(kind: pa.DataType) -> bool:
    of = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
    )
    return any(is_kind(kind) for is_kind in of)


def _texts_singly(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Return texts of what arrow does not cast whole: of bytes those that are UTF-8."""
    read: list[str | None] = []
    unread = np.zeros(len(values), np.bool_)
    for place, value in enumerate(_decoded(values)):
        content = value.as_py() if _is_text(value.type) else None
        try:
            read.append(content.decode() if isinstance(content, bytes) else content)
        except UnicodeDecodeError:
            read.append(None)
        unread[place] = value.is_valid and read[-1] is None
    return pa.array(read, pa.string()), unread


def _typed_numbers(values: pa.Array) -> Cells:
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_duration(kind) or pa.types.is_time(kind):  # in seconds
        per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        whole = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        values = pc.divide(whole.cast(pa.float64(), safe=False), per_second)
    try:
        # A whole number above 2**53 becomes the nearest float.
        cast = values.cast(pa.float64(), safe=False)
    except _ARROW:
        nothing = np.full(len(values), np.nan)
        unread = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        return Cells(nothing, unread, f"expected numbers, found {kind}", _of_kind(kind))
    read = np.array(cast.to_numpy(zero_copy_only=False), dtype=np.float64)
    return Cells(read, np.zeros(len(values), np.bool_))


def _of_kind(kind: pa.DataType) -> str:
    if pa.types.is_temporal(kind):
        return 'a date needs date = "%Y-%m-%d"'
    return ""


def _written_numbers(values: pa.Array, form: TableForm, codes: frozenset[str]) -> Cells:
    """Return the numbers that texts write. Most files need no look at each."""
    read = texts(values)
    if form.plain_numbers and not read.unread.any():
        try:
            cast = read.values.cast(pa.float64())
            every = np.array(cast.to_numpy(zero_copy_only=False), dtype=np.float64)
            return Cells(every, np.zeros(len(values), np.bool_))
        except _ARROW:
            pass
    encoded = read.values.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    parsed = [np.nan if by_value(word) in codes else form.number(word) for word in words]
    none = np.array([*(number is None for number in parsed), False])
    places = encoded.indices.fill_null(len(parsed)).to_numpy(zero_copy_only=False)
    of_each = np.array([np.nan if number is None else number for number in [*parsed, np.nan]])
    bad = [word for word, number in zip(words, parsed, strict=True) if number is None]
    good = [word for word, number in zip(words, parsed, strict=True) if number is not None]
    helps = hint(bad[0], form, good) if bad else ""
    why = f"expected numbers, found {values.type}"
    return Cells(of_each[places], read.unread | none[places], why, helps)
