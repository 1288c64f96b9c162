"""The form of a date, guessed from a public sample of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tacit.datasets.own.cells import dates, texts

_PATTERNS = (
    *("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%m-%d-%Y", "%d-%m-%Y"),
    *("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%f"),
    *("%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M"),
    *("%Y-%m-%d %H:%M:%S.%f", "%d.%m.%y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y"),
)
_DIGITS = "%Y%m%d"  # a whole number, too
_LIKELY = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_MIRRORED = (("%m/%d", "%d/%m"), ("%m-%d", "%d-%m"))
# What stands for no date.
_NO_DATES = (
    *("0000-00-00", "00.00.0000", "00/00/0000", "00000000", "0000-00-00 00:00:00"),
    *("9999-12-31", "31.12.9999", "12/31/9999", "31/12/9999", "99991231", "9999-12-31 00:00:00"),
)
_HEAD = 2000  # rows that tell the pattern
_DATED = 0.98
_LAST_YEAR = 9999


@dataclass(frozen=True, slots=True)
class DateGuess:
    """A date's public constants, and what of the sample is none.

    pattern: as strptime has it. since, until: the first and last day. missing: whether rows have no
    date. codes: cells that stand for none. mirrored: a pattern of other days that fits as well.
    """

    pattern: str
    since: str
    until: str
    missing: bool = False
    codes: tuple[str, ...] = ()
    mirrored: str = ""


def date_guess(values: pa.Array, no_value: tuple[str, ...]) -> DateGuess | None:
    """Guess the form of a column's dates; None: it has none.

    no_value: words that stand for no value in a column of any kind.
    """
    present = set(texts(values).values.drop_null().unique().to_pylist())
    codes = tuple(word for word in (*no_value, *_NO_DATES) if word in present)
    written = present - set(codes)
    patterns = _patterns(values.type, written)
    fitting = [pattern for pattern in patterns if _fits(values.slice(0, _HEAD), pattern, codes)]
    for pattern in fitting:
        read = dates(values, pattern, codes)
        days = [day for day in read.values if day is not None]
        if read.unread.any() or not days:
            continue
        until = f"{min(max(days).year + 1, _LAST_YEAR)}-12-31"
        since = f"{min(days).year:04d}-01-01"
        other = _mirrored(pattern, fitting)
        return DateGuess(pattern, since, until, len(days) < len(values), codes, other)
    return None


def _patterns(kind: pa.DataType, written: set[str]) -> tuple[str, ...]:
    """Return the patterns that such values may have."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _PATTERNS[:1]
    if not written or not all(word[:1].isdigit() for word in written):
        return ()
    if all(_LIKELY.fullmatch(word) for word in written):
        return (_DIGITS,)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _PATTERNS
    return ()


def _fits(head: Any, pattern: str, codes: tuple[str, ...]) -> bool:
    read = dates(head, pattern, codes)
    dated = sum(day is not None for day in read.values)
    return bool(dated and read.unread.sum() <= (1 - _DATED) * (dated + read.unread.sum()))


def _mirrored(pattern: str, fitting: list[str]) -> str:
    """Return the pattern with day and month exchanged where it fits as well."""
    for ours, theirs in _MIRRORED:
        other = pattern.replace(ours, theirs)
        if other != pattern and other in fitting:
            return other
    return ""
