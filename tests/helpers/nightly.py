"""Cases that take longer than CI has time for, beside a shorter one that it runs."""

from __future__ import annotations

from typing import Any

import pytest


def nightly(*values: Any) -> list[Any]:
    """Leave `values` of a parameter to `make nightly`; of several parameters, tuples."""
    several = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*each, marks=pytest.mark.exhaustive) for each in several]
