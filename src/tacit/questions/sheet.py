"""All questions that are asked together, as the places of one vector.

The vector of a row is the parts' vectors, each times the square root of its share of the budget. So
its length is 1 at most, and one Gaussian release answers all. That costs less than a release for
each. A question with twice the weight has noise that is √2 times smaller.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tacit.errors import ConfigError
from tacit.questions.question import Question
from tacit.questions.row_parts import (
    Absent,
    Bins,
    Entries,
    Everybody,
    Moments,
    Pairs,
    Part,
    Ranks,
    RawCells,
    Reals,
    RowVectors,
)
from tacit.questions.spelling import Spelled

# Cells of a column without public bounds: signed powers of ten, from 0.001 to 10^12.
_DECADES = (-3, 12)
_CELLS, _CELLS_WITHOUT_BOUNDS = 128, 256
_MOST_WIDTH = 2**24  # a place is stored as a float32
_LARGEST = 1e300  # of a bound: twice it is finite


@dataclass(frozen=True, slots=True)
class PublicColumns:
    """What is public of columns. bounds: of numbers, low and high. values: of categories."""

    bounds: Mapping[str, tuple[float, float]]
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question and its part. scale: what the part's vectors are multiplied by. place: where."""

    question: Question
    part: Part
    scale: float
    place: slice


class QuestionSheet:
    """The questions that one release answers.

    width: the numbers of a row's vector. stored: of a packed row. support: the most numbers of a
    row's vector that are not 0.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        columns: PublicColumns,
        weights: Sequence[float] = (),
        unit_rows: int = 1,
    ) -> None:
        """weights: of each question, all alike where there are none.

        unit_rows: the most rows of a unit that count. A row's vector is divided by it, so that of a
        unit, which is its rows' sum, has length at most 1. Raises ConfigError where a question
        needs what is not public of its column, and for more answers than can be counted.
        """
        weighed = list(weights) or [1.0] * len(questions)
        shares: dict[Part, float] = {}
        spread = {question.columns for question in questions if question.kind == "std"}
        parts = [part_of(question, columns, spread) for question in questions]
        for part, weight in zip(parts, weighed, strict=True):
            shares[part] = shares.get(part, 0.0) + weight
        total = sum(shares.values())
        places: dict[Part, slice] = {}
        self.width = 0
        for part in shares:
            places[part] = slice(self.width, self.width + part.width)
            self.width += part.width
        self._scales = {part: math.sqrt(share / total) for part, share in shares.items()}
        self._places = places
        self.stored = sum(part.stored for part in shares)
        self.support = sum(part.support for part in shares)
        self.unit_rows = unit_rows
        if self.width > _MOST_WIDTH:
            raise ConfigError(
                f"questions: they have {self.width:,} answers; at most {_MOST_WIDTH:,} are counted"
            )
        self.asked = tuple(
            AskedQuestion(question, part, self._scales[part], places[part])
            for question, part in zip(questions, parts, strict=True)
        )

    @property
    def numeric(self) -> tuple[str, ...]:
        """The columns that are read as numbers."""
        return self._columns((Bins, Ranks, Moments))

    @property
    def textual(self) -> tuple[str, ...]:
        """The columns that are read as text."""
        return self._columns((Absent, Pairs, Spelled))

    def _columns(self, kinds: tuple[type[Part], ...]) -> tuple[str, ...]:
        questions = [each.question for each in self.asked if isinstance(each.part, kinds)]
        return tuple(dict.fromkeys(name for question in questions for name in question.columns))

    def stated(self) -> list[list[object]]:
        """Return what a row's vector follows from, as JSON has it: each part, and its scale."""
        return [
            [type(part).__name__, asdict(part), scale.hex()] for part, scale in self._scales.items()
        ]

    @property
    def most_entries(self) -> int:
        """The most numbers of a unit's vector that are not 0."""
        return min(self.width, self.support * self.unit_rows)

    def packed(self, cells: RawCells) -> RowVectors:
        """Return what is stored of each row (n, stored)."""
        columns = [part.packed(cells) for part in self._places]
        return np.concatenate([np.zeros((cells.rows, 0), np.float32), *columns], axis=1)

    def entries(self, packed: RowVectors) -> Entries:
        """Return the vectors (n, width) of packed rows, of length 1 / unit_rows at most."""
        places, values, first = [], [], 0
        for part, place in self._places.items():
            of_part = part.entries(packed[:, first : first + part.stored])
            places.append(of_part.places + place.start)
            values.append(of_part.values * np.float32(self._scales[part]))
            first += part.stored
        of_row = np.concatenate(values, axis=1) / np.float32(self.unit_rows)
        return Entries(np.concatenate(places, axis=1), of_row.astype(np.float32, copy=False))

    def vectors(self, cells: RawCells) -> RowVectors:
        """Return each row's vector (n, width), as an edge makes it of what it stores."""
        return self.entries(self.packed(cells)).dense(self.width)


def part_of(
    question: Question, columns: PublicColumns, spread: Collection[tuple[str, ...]]
) -> Part:
    """Return what is counted for a question. Raises ConfigError.

    spread: the columns whose standard deviation is asked for, too: the mean then shares its part.
    """
    match question.kind:
        case "count":
            return Everybody()
        case "missing":
            return Absent(question.columns[0])
        case "histogram":
            low, high, cells = question.numbers
            return Bins(question.columns[0], _even(question, low, high, int(cells)))
        case "quantile":
            column = question.columns[0]
            bounds = columns.bounds.get(column)
            edges = _powers() if bounds is None else _even(question, *bounds, _CELLS)
            return Ranks(column, edges)
        case "counts" if question.columns[0] not in columns.values:
            return Spelled(question.columns[0])
        case "counts" | "crosstab":
            values = tuple(_values(question, name, columns) for name in question.columns)
            return Pairs(question.columns, values)
        case "mean" | "std" | "correlation":
            bounds_of = tuple(_bounds(question, name, columns) for name in question.columns)
            squares = question.kind != "mean" or question.columns in spread
            return Moments(question.columns, bounds_of, squares)


def _bounds(question: Question, name: str, columns: PublicColumns) -> tuple[float, float]:
    if name in columns.values:
        raise ConfigError(
            f"question {question.text!r}: {name!r} is a category, as data.columns.{name} has "
            f'values; ask "counts by {shlex.quote(name)}", or state low and high in their place'
        )
    if name not in columns.bounds:
        raise ConfigError(
            f"question {question.text!r}: {name!r} has no public bounds; ask for its quantiles "
            f"first, or state data.columns.{name}: low and high"
        )
    _check_span(question, *columns.bounds[name])
    return columns.bounds[name]


def _values(question: Question, name: str, columns: PublicColumns) -> tuple[str, ...]:
    if name in columns.bounds:
        raise ConfigError(
            f"question {question.text!r}: {name!r} is a number, as data.columns.{name} has low "
            "and high; ask for its histogram, or state values in their place"
        )
    if name not in columns.values:
        raise ConfigError(
            f"question {question.text!r}: the values of {name!r} are not public; ask "
            f'"counts by {shlex.quote(name)}" first, or state data.columns.{name}: values'
        )
    return columns.values[name]


def _even(question: Question, low: float, high: float, cells: int) -> tuple[float, ...]:
    """Return edges of equal cells. Raises ConfigError where float64 does not tell them apart."""
    _check_span(question, low, high)
    edges: Reals = np.linspace(low, high, cells + 1)
    if not (np.diff(edges) > 0).all():
        raise ConfigError(
            f"question {question.text!r}: {low!r} to {high!r} is too narrow for {cells} cells"
        )
    return tuple(map(float, edges))


def _check_span(question: Question, low: float, high: float) -> None:
    """Raise ConfigError where float64 cannot hold all that lies between two bounds."""
    if not max(abs(low), abs(high)) <= _LARGEST:
        raise ConfigError(
            f"question {question.text!r}: {low!r} to {high!r} is too wide; at most "
            f"{_LARGEST:g} is counted"
        )


def _powers() -> tuple[float, ...]:
    """Return the edges of cells of both signs, whose width grows with their distance."""
    positive = np.logspace(*_DECADES, _CELLS_WITHOUT_BOUNDS // 2)
    edges: Reals = np.concatenate([-positive[::-1], [0.0], positive])
    return tuple(map(float, edges))
