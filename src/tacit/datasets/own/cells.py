"""A table's cell, read by its value: the same for a sample, training, prediction, CSV and Parquet.

A cell has one text: blanks around it are gone, 7.0 and 7.50 are 7 and 7.5, TRUE is true. A cell is
missing where it is empty, null, or one of a few words. How a cell is read depends on that cell and
on public constants alone.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tacit.datasets.own.days import written_day
from tacit.datasets.own.table_form import MISSING_WORDS, USUAL, TableForm, hint

_DECIMAL = re.compile(r"([+-]?[0-9]+)\.([0-9]*?)0*")
Mask = npt.NDArray[np.bool_]
Floats64 = npt.NDArray[np.float64]
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
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
    """Return the one text of what `text` writes. An accent is one character, or two as on a Mac.

    >>> by_value(" 7.0"), by_value("7.50"), by_value("TRUE"), by_value("007"), by_value("x ")
    ('7', '7.5', 'true', '007', 'x')
    >>> by_value("-0.0"), len(by_value("Zu\\u0308rich"))
    ('0', 6)
    """
    trimmed = unicodedata.normalize("NFC", text.strip())
    if trimmed.casefold() in ("true", "false"):
        return trimmed.casefold()
    number = _DECIMAL.fullmatch(trimmed)
    if number and not number[2]:
        return "0" if number[1] == "-0" else number[1]
    if number:
        return f"{number[1]}.{number[2]}"
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
    cells.values[np.isin(cells.values, _code_numbers(codes, form, plain.type))] = np.nan
    return cells


def _code_numbers(codes: tuple[str, ...], form: TableForm, kind: pa.DataType) -> list[float]:
    """Return the numbers among codes for no value, as a column of this type holds them.

    A run file writes them with a point, also where its tables have a comma. -99.9 of float32 is
    another number.
    """
    coded: list[float] = []
    for code in codes:
        number = form.number(code)
        if number is None:
            number = USUAL.number(code)
        if number is not None:
            coded.append(number)
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        with np.errstate(over="ignore"):  # infinite: no such number is in the column
            return [float(number) for number in np.array(coded).astype(kind.to_pandas_dtype())]
    return coded


def dates(values: pa.Array, pattern: str, codes: tuple[str, ...] = ()) -> Cells:
    """Return a list of dates, None where a cell is missing; a text is read by `pattern`."""
    kind = values.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _typed_dates(values, codes)
    read = texts(values, MISSING_WORDS | set(codes))
    encoded = read.values.dictionary_encode()
    parsed = [written_day(text, pattern) for text in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(parsed)).to_numpy(zero_copy_only=False)
    of_each = [*parsed, None]
    unread = read.unread | np.array([*(date is None for date in parsed), False])[places]
    pattern_words = f"expected dates as {pattern}, found {kind}"
    return Cells([of_each[place] for place in places], unread, pattern_words)


def _typed_dates(values: pa.Array, codes: tuple[str, ...]) -> Cells:
    """Return the days of dates and times, where they are; the hour is not read.

    A code is a date as 9999-12-31. A day beyond the years 1 to 9999 cannot be read.
    """
    kind = values.type
    absent = np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)
    if pa.types.is_timestamp(kind):
        try:
            local = values if kind.tz is None else pc.local_timestamp(values)
        except _ARROW:
            return Cells([None] * len(values), ~absent, "expected dates in a zone that is known")
        counted = local.cast(pa.int64())
        per_day = _A_DAY[kind.unit]
    elif pa.types.is_date64(kind):
        counted = values.cast(pa.int64())
        per_day = _A_DAY["ms"]
    else:
        counted = values.cast(pa.int32()).cast(pa.int64())
        per_day = 1
    numbered = counted.fill_null(0).to_numpy(zero_copy_only=False) // per_day + _EPOCH
    unread = ~absent & ((numbered < 1) | (numbered > datetime.date.max.toordinal()))
    different, places = np.unique(np.where(absent | unread, 1, numbered), return_inverse=True)
    days: list[Any] = [datetime.date.fromordinal(int(number)) for number in different]
    days = [None if day.isoformat() in codes else day for day in days]
    without = (absent | unread).tolist()
    of_each = [None if no else days[place] for no, place in zip(without, places, strict=True)]
    return Cells(of_each, unread, f"expected dates of the years 1 to 9999, found {kind}")


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
    """Return the numbers that texts write. Most files need no look at each.

    Arrow takes nan(1) for a number, so a nan that nobody left empty is looked at again: how a cell
    is read must not depend on those beside it.
    """
    read = texts(values)
    if form.plain_numbers and not read.unread.any():
        try:
            cast = read.values.cast(pa.float64())
            every = np.array(cast.to_numpy(zero_copy_only=False), dtype=np.float64)
            if int(np.isnan(every).sum()) == read.values.null_count:
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
