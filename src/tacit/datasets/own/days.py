"""Days: how a text writes one, and how it is counted. No clock is read."""

from __future__ import annotations

import datetime
import re

Day = datetime.date


def day(text: str) -> Day:
    """Return the day of an ISO text, as 2000-01-31. Raises ValueError."""
    return datetime.date.fromisoformat(text)


def written_day(text: str, pattern: str) -> Day | None:
    """Return the day that `text` writes by `pattern`, as strptime has it; None: it writes none."""
    try:
        return datetime.datetime.strptime(text, pattern).date()
    except (ValueError, re.error):
        return None


def iso(value: object) -> object:
    """Return a day as text, and all else as it is. Raises ValueError for a text that is none.

    >>> iso("2000-01-31")
    '2000-01-31'
    """
    if isinstance(value, datetime.date):
        return value.isoformat()[:10]
    if isinstance(value, str):
        day(value)
    return value
