"""Whether a column of a public sample looks like an id, which is no feature by itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

# A word of the name, its last word, or its end; in lower case, with PatientId in two words.
_ID_NAME = re.compile(
    r"(^|[_\W])(p?id|mrn|uuid|guid|ssn)([_\W]|$)"
    r"|(^|[_\W])(nr|no|num|number|nummer|key|patient|person|subject|participant|case|fall)$"
    r"|(patient|person|subject|participant|case|fall|encounter|visit|stay|admission|record|customer"
    r"|user|member|client|account|policy|unique)s?(en)?p?(id|nr|no|num|number|nummer|key)$"
)
_NO_ID = re.compile(r"age|year|month|week|day|time|date|alter|jahr|monat|woche|tag", re.I)
_FEW = 50  # different values; a column of fewer is not taken for ids by its rows
_ROWS_OF_ONE = (1.5, 20.0)  # rows of a person on average


def named_id(name: str) -> bool:
    """Check whether a column is called as ids are.

    >>> [named_id(name) for name in ("PatientId", "patientid", "mrn", "case no", "ID")]
    [True, True, True, True, True]
    >>> [named_id(name) for name in ("patient_weight", "no_of_visits", "covid", "age")]
    [False, False, False, False]
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return _ID_NAME.search(words.casefold()) is not None or name.endswith("ID")


def numbers_rows(numbers: Any, rows: int) -> bool:
    """Check whether whole numbers count the rows: without a gap, each once."""
    return len(numbers) == rows > 20 and bool((np.diff(np.sort(numbers)) == 1).all())


def numbers_persons(name: str, numbers: Any, rows: int) -> bool:
    """Check whether whole numbers repeat over rows as ids of persons do.

    So it is where there are many without many gaps, or where the rows of each lie side by side.
    """
    different = len(np.unique(numbers))
    if not different or different > 0.95 * rows:
        return False
    dense = different >= 0.9 * (numbers.max() - numbers.min() + 1)
    if different > max(200, rows // 20) and dense:
        return True
    low, high = _ROWS_OF_ONE
    side_by_side = 1 + int((np.diff(numbers) != 0).sum()) == different
    many = different > _FEW and low <= rows / different <= high
    return many and side_by_side and _NO_ID.search(name) is None
