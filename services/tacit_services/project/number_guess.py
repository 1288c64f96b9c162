"""Bounds, center and scale of a number, guessed from a public sample of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.datasets.own.table_form import MISSING_NUMBERS

_TWICE = 2  # rows that a code needs: a number that is there once is a number
_APART = 3.0  # a positive code is so many times as large as all else
_NINE_TENTHS = 3.29  # deviations from the fifth to the 95th percentile of a normal number
_NORMAL = 1.4826  # a median absolute deviation is so many times smaller than a deviation
_SKEWED = 1.0  # a skewness from which the logarithm is tried


@dataclass(frozen=True, slots=True)
class NumberGuess:
    """A number's public constants. center is in the file's unit, scale of the logarithm if `log`.

    count: whether it is a count of few, whose upper bound is wider than what was seen.
    """

    low: float
    high: float
    center: float
    scale: float
    log: bool = False
    count: bool = False


def missing_numbers(values: Any) -> list[float]:
    """Return the numbers among `values` that stand for no value, as -9 where all else is positive.

    >>> missing_numbers(np.array([3.0, 5.0, -9.0, -9.0]))
    [-9.0]
    >>> missing_numbers(np.array([-3.0, 5.0, -9.0, -9.0]))
    []
    """
    different, counts = np.unique(values, return_counts=True)
    frequent = set(different[counts >= _TWICE].tolist())
    codes = [code for code in MISSING_NUMBERS if code in frequent]
    rest = [number for number in different.tolist() if number not in codes]
    if not rest:
        return []
    largest = max(map(abs, rest))
    return [
        code
        for code in codes
        if (code < 0 <= min(rest)) or (code > 0 and code > _APART * largest and len(rest) > 1)
    ]


def number_guess(values: Any, *, counts: bool) -> NumberGuess:
    """Guess the constants of finite numbers. counts: whether they count something, up to a few."""
    low = outward(float(values.min()), down=True)
    if counts:
        low, high = 0.0, 2.0 * outward(float(values.max()), down=False)
    else:
        high = outward(float(values.max()), down=False)
    if high <= low:
        high = low + 1.0
    log = not counts and _gains(values, low)
    stretched = _stretched(values, low) if log else values
    scale = rounded(_spread(stretched))
    center = min(max(rounded(float(np.median(values)), 3), low), high)
    return NumberGuess(low, high, center, scale, log, counts)


def _stretched(values: Any, low: float) -> Any:
    """Return what `Number.stretched` makes of them."""
    return np.log(values) if low > 0 else np.log1p(values - low)


def _gains(values: Any, low: float) -> bool:
    """Check whether positive numbers are so skewed that their logarithm is more even."""
    if low < 0 or len(values) < 20 or (low == 0 and values.max() < 10):
        return False
    plain = _skewness(values)
    return plain > _SKEWED and abs(_skewness(_stretched(values, low))) < plain / 2


def _skewness(values: Any) -> float:
    largest = float(np.abs(values).max()) or 1.0
    shares = values / largest  # no square of a large number
    deviation = float(shares.std())
    if not deviation:
        return 0.0
    return float((((shares - shares.mean()) / deviation) ** 3).mean())


def _spread(values: Any) -> float:
    """Return a robust standard deviation, never zero, of numbers of any size.

    That is the larger of two: by the median distance from the median, and by the inner nine tenths.
    A column with a long tail is not much wider than others, or it alone would set every step.
    """
    largest = float(np.abs(values).max()) or 1.0
    shares = values / largest
    middle = float(np.median(shares))
    low, high = np.quantile(shares, (0.05, 0.95))
    by_median = _NORMAL * float(np.median(np.abs(shares - middle)))
    by_tenths = float(high - low) / _NINE_TENTHS
    for spread in (max(by_median, by_tenths), float(shares.std())):
        if spread > 1e-9 * max(1.0 / largest, abs(middle)):
            return min(spread, 1.0) * largest
    return 1.0


def outward(value: float, *, down: bool) -> float:
    """Round `value` outward to two digits, so that it is not the number of one row."""
    if not value or not math.isfinite(value):
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    if down:
        multiple = math.floor(value / step)
    else:
        multiple = math.ceil(value / step)
    return float(f"{multiple * step:.12g}")


def rounded(value: float, digits: int = 2) -> float:
    """Round to a few digits."""
    return float(f"{value:.{digits}g}")
