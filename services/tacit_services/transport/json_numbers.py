"""Numbers for JSON, which has neither infinity nor NaN: null stands for them.

An ε of null means that there is no guarantee.
"""

from __future__ import annotations

import math
from typing import Any


def finite_or_none(number: float) -> float | None:
    """Return `number`, or None where it is infinite or NaN."""
    if math.isfinite(number):
        return number
    return None


def finite(value: Any) -> Any:
    """Return a JSON document with None in place of every infinity and NaN, at any depth."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float):
        return finite_or_none(value)
    return value
