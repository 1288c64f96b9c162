"""Whether a column of a public sample looks like an id, which is no feature by itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_NO_ID = re.compile(r"age|year|month|week|day|time|date|alter|jahr|monat|woche|tag", re.I)
_FEW = 50  # different values; a column of fewer is not taken for ids by its rows
_ROWS_OF_ONE = (1.5, 20.0)  # rows of a person on average


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
