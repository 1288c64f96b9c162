"""The id of a row's unit, 16 bytes: a function of that row's value alone, for every kind of data.

A value has one text in every file and type: 7, 7.0 and "7.0" are "7". An accent is one character,
or two as on a Mac. So a unit stays at its edge when its column's type changes, and depends on no
value beside it.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from tacit.datasets.own.rows import RowError, UnitIds, hashed

_EXACT = 1 << 53  # float64 holds every whole number up to here
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
# A word of the name, its last word, or its end; in lower case, with PatientId in two words.
_ID_NAME = re.compile(
    r"(^|[_\W])(p?id|mrn|uuid|guid|ssn)([_\W]|$)"
    r"|(^|[_\W])(nr|no|num|number|nummer|key|patient|person|subject|participant|case|fall)$"
    r"|(patient|person|subject|participant|case|fall|encounter|visit|stay|admission|record|customer"
    r"|user|member|client|account|policy|unique)s?(en)?p?(id|nr|no|num|number|nummer|key)$"
)
_BY_TEXT = (str, int, datetime.date, uuid.UUID)  # whose str() says all that they hold


def named_id(name: str) -> bool:
    """Check whether a column is called as ids are.

    >>> [named_id(name) for name in ("PatientId", "patientid", "mrn", "case no", "ID")]
    [True, True, True, True, True]
    >>> [named_id(name) for name in ("patient_weight", "no_of_visits", "covid", "age")]
    [False, False, False, False]
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return _ID_NAME.search(words.casefold()) is not None or name.endswith("ID")


def unit_ids(values: Iterable[Any], where: str, first: int) -> UnitIds:
    """Return the units of some rows, the first one row `first`. Raises RowError, naming `where`."""
    return hashed(unit_text(value, where, first + row).encode() for row, value in enumerate(values))


def unit_text(value: Any, where: str, row: int) -> str:
    """Return the one text of a unit's value. Raises RowError, naming `where`, for no value."""
    try:
        text = _text(_plain(value))
        text.encode()
    except (ValueError, ArithmeticError) as error:  # also a word that is no Unicode
        raise RowError(
            f"{where}: a unit is a word or a whole number (as a float, below 2**53)", row
        ) from error
    if not text:
        raise RowError(f"{where}: a missing value", row)
    return text


def _plain(value: Any) -> Any:
    """Return Python's own number for one of numpy's or torch's."""
    if getattr(value, "shape", None) == ():
        return value.item()
    return value


def _text(value: Any) -> str:
    """Return the text of a value. Raises ValueError where it has no text that is its own."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | Decimal):
        if value % 1 or (isinstance(value, float) and abs(value) > _EXACT):
            raise ValueError
        return str(int(value))
    if isinstance(value, bytes):
        value = value.decode()
    if not isinstance(value, _BY_TEXT):
        raise ValueError
    return whole(unicodedata.normalize("NFC", str(value).strip()))


def whole(text: str) -> str:
    """Return `text`, or where it is a whole number with zeros behind the point: that number."""
    number = _WHOLE.fullmatch(text)
    if number:
        return number[1]
    return text
