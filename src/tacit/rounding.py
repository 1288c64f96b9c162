"""Numbers rounded for words.

What is spent is never less than is said, what is left never more, and what breaks a bound never
reads as if it kept it.
"""

from __future__ import annotations

import math
from decimal import Decimal

_LARGE = 20.0  # ε, whose odds are written as a power of ten
_EVEN = 0.5  # a guess of somebody who knows nothing

# A part of it: two ways to add up the same releases differ by less, and 4 is not to read as 4.001.
_SAME = 1e-9


def up(value: float, digits: int = 4) -> str:
    """Return `value` in `digits` digits, no less than it is (but for a part in 10⁹)."""
    return _to(value, _places(value, digits), digits)


def down(value: float, digits: int = 4) -> str:
    """Return `value` in `digits` digits, no more than it is (but for a part in 10⁹)."""
    return _to(-value, _places(value, digits), digits).removeprefix("-")


def epsilon(value: float) -> str:
    """Write an ε in four digits, at most six decimals, rounded up (but for a part in 10⁹).

    So what is read is never below what was recorded. The page's `epsilon` (words.js) writes the
    same: both are held to tests/snapshots/epsilon.json.
    """
    if math.isinf(value):
        return "∞"
    digits = f"{_ceiling(value, min(_places(value, 4), 6)):.6f}"
    return digits.rstrip("0").rstrip(".")


def odds(epsilon: float) -> str:
    """Write e^ε, the most by which an ε makes an answer likelier, rounded up.

    It has two digits, or three from 100 on. A large one is a power of ten. The page's `times`
    (words.js) writes the same.
    """
    if math.isinf(epsilon):
        return "∞"
    if epsilon > _LARGE:
        return f"10^{math.ceil(epsilon / math.log(10))}"
    value = math.exp(epsilon)
    places = math.floor(math.log10(value))
    step = 10.0 ** (places - (1 if places < 2 else 2))
    least = math.ceil(value / step) * step
    if least < 100:
        return f"{least:.2g}"
    return f"{least:,.0f}"


def guess(epsilon: float) -> str | None:
    """Write how sure a guess that was even can become by an ε; no less than it is.

    None stands for what is as good as certain.
    """
    surest = 100 * _EVEN / (_EVEN + (1 - _EVEN) * math.exp(-epsilon))
    percent = _ceiling(surest, 1)
    return None if percent >= 100 else f"{percent:g} %"


def decimal(value: float) -> str:
    """Write a number without an exponent, as 0.00001.

    >>> decimal(1e-5)
    '0.00001'
    """
    return f"{Decimal(repr(value)):f}"


def beside(value: float, bound: float, digits: int = 3) -> str:
    """Return `value` in `digits` digits, or as many more as it takes to tell it from `bound`."""
    for more in range(digits, 17):
        text = f"{value:.{more}g}"
        if value == bound or float(text) != float(f"{bound:.{more}g}"):
            return text
    return repr(value)


def _places(value: float, digits: int) -> int:
    finite = math.isfinite(value) and value != 0
    if finite:
        return digits - 1 - math.floor(math.log10(abs(value)))
    return 0


def _to(value: float, places: int, digits: int) -> str:
    return f"{_ceiling(value, places):.{digits}g}"


def _ceiling(value: float, places: int) -> float:
    if not math.isfinite(value):
        return value
    unit = 10.0**places
    return math.ceil(value * unit - abs(value) * unit * _SAME) / unit
