"""A question about rows, as a person writes it: "mean income", "histogram age 0 110 22".

    count                            how many rows there are
    missing COLUMN                   how many rows have no value there
    histogram COLUMN LOW HIGH CELLS  how many rows lie in each of CELLS equal cells
    quantile COLUMN P [P ...]        the values that shares P of the rows lie below
    mean COLUMN                      of values that are cut at the column's public bounds
    std COLUMN                       their standard deviation
    counts by COLUMN                 how many rows have each value of a category
    crosstab COLUMN COLUMN           how many rows have each pair of values
    correlation COLUMN COLUMN        Pearson's, of values that are cut at their bounds

A name with blanks stands in quotes. All that a question says is public.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tacit.errors import ConfigError

QuestionKind = Literal[
    "count", "missing", "histogram", "quantile", "mean", "std", "counts", "crosstab", "correlation"
]
MOST_CELLS = 1_000
_USAGE: dict[str, str] = {
    "count": "count",
    "missing": "missing COLUMN",
    "histogram": "histogram COLUMN LOW HIGH CELLS",
    "quantile": "quantile COLUMN P [P ...]",
    "mean": "mean COLUMN",
    "std": "std COLUMN",
    "counts": "counts by COLUMN",
    "crosstab": "crosstab COLUMN COLUMN",
    "correlation": "correlation COLUMN COLUMN",
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question. text: as it was written. numbers: of a histogram or of quantiles."""

    text: str
    kind: QuestionKind
    columns: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()


def parse(text: str) -> Question:
    """Read a question.

    Raises ConfigError, which says how such a question is written.

    >>> parse("histogram age 0 110 22").numbers
    (0.0, 110.0, 22.0)
    >>> parse('mean "net income"').columns
    ('net income',)
    """
    try:
        word, *operands = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"question {text!r}: expected a question, {_kinds()}") from error
    if word not in _READERS:
        raise ConfigError(f"question {text!r}: expected {_kinds()}")
    try:
        return _READERS[word](text, operands)
    except ValueError as error:
        why = f" ({error})" if str(error) else ""
        raise ConfigError(f"question {text!r}: expected {_USAGE[word]}{why}") from error


def _kinds() -> str:
    *most, last = (usage.split(" COLUMN")[0] for usage in _USAGE.values())
    return f"{', '.join(most)} or {last}"


def _count(text: str, operands: list[str]) -> Question:
    _require(not operands)
    return Question(text, "count")


def _of_columns(kind: QuestionKind, number: int) -> Callable[[str, list[str]], Question]:
    def read(text: str, operands: list[str]) -> Question:
        _require(len(operands) == number)
        if len(set(operands)) < number:
            raise ValueError("the two columns are the same")
        return Question(text, kind, tuple(operands))

    return read


def _counts(text: str, operands: list[str]) -> Question:
    _require(len(operands) == 2 and operands[0] == "by")
    return Question(text, "counts", (operands[1],))


def _histogram(text: str, operands: list[str]) -> Question:
    _require(len(operands) == 4)
    column, *written = operands
    low, high, cells = _numbers(written)
    if not low < high:
        raise ValueError(f"LOW={low:g} is not below HIGH={high:g}")
    if cells % 1 or not 1 <= cells <= MOST_CELLS:
        raise ValueError(f"CELLS={cells:g}: expected a whole number from 1 to {MOST_CELLS:,}")
    return Question(text, "histogram", (column,), (low, high, cells))


def _quantile(text: str, operands: list[str]) -> Question:
    _require(len(operands) >= 2)
    column, *written = operands
    shares = _numbers(written)
    if len(shares) > MOST_CELLS:
        raise ValueError(f"{len(shares):,} shares: expected at most {MOST_CELLS:,}")
    for share in shares:
        if not 0 < share < 1:
            raise ValueError(f"P={share:g}: expected a share between 0 and 1")
    if list(shares) != sorted(set(shares)):
        raise ValueError("the shares P must ascend")
    return Question(text, "quantile", (column,), shares)


def _numbers(written: list[str]) -> tuple[float, ...]:
    numbers = tuple(map(float, written))
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number is not finite")
    return numbers


def _require(agrees: bool) -> None:
    if not agrees:
        raise ValueError


_READERS: dict[str, Callable[[str, list[str]], Question]] = {
    "count": _count,
    "missing": _of_columns("missing", 1),
    "histogram": _histogram,
    "quantile": _quantile,
    "mean": _of_columns("mean", 1),
    "std": _of_columns("std", 1),
    "counts": _counts,
    "crosstab": _of_columns("crosstab", 2),
    "correlation": _of_columns("correlation", 2),
}
