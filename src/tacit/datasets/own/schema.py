"""The public schema of an own table: which columns are read, and what each becomes.

Every constant stands in the run file and is public: bounds, categories, what a missing value is.
Nothing is computed from the rows, so encoding a row is a function of that row alone.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tacit.datasets.own.days import Day, day
from tacit.datasets.own.vocabulary import Vocabulary

MissingRule = Literal["refuse", "other"] | float
DatePart = Literal["days", "day", "month", "weekday"]
Value = str | int | float | bool
PARTS: tuple[DatePart, ...] = ("days", "day", "month", "weekday")
WIDTHS: dict[DatePart, int] = {"days": 1, "day": 1, "month": 12, "weekday": 7}


@dataclass(frozen=True, slots=True)
class Number:
    """A number, cut at public bounds and scaled: to [0, 1], or by a public center and scale.

    It is one place of x, or a regression's target.

    missing: "refuse", or the number (within the bounds) that a missing value is taken for.
    log: its logarithm counts (`stretched`); `center` is in the file's unit, `scale` then of the
    logarithm. missing_codes: cells that stand for no value, as -9.
    """

    kind: ClassVar[str] = "number"

    name: str
    low: float
    high: float
    missing: MissingRule = "refuse"
    center: float | None = None
    scale: float | None = None
    log: bool = False
    missing_codes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Places of x that it takes."""
        return 1

    def scaled(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Return finite or infinite numbers (n,), cut at the bounds and scaled."""
        ends = self.stretched(np.array([self.low, self.high]))
        begin, span = ends[0], ends[1] - ends[0]
        if self.center is not None and self.scale is not None:
            begin, span = self.stretched(np.array([self.center]))[0], self.scale
        cut = self.stretched(np.clip(numbers, self.low, self.high))
        scaled: npt.NDArray[np.float32] = ((cut - begin) / span).astype(np.float32)
        return scaled

    def stretched(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return ln v, or where `low` is not positive ln(1 + v - low); v itself without `log`."""
        if not self.log:
            return numbers
        logarithms: npt.NDArray[np.float64]
        if self.low > 0:
            logarithms = np.log(numbers)
        else:
            logarithms = np.log1p(numbers - self.low)
        return logarithms


@dataclass(frozen=True, slots=True)
class Category:
    """A category, one-hot over its values, and one place more for every other value.

    missing: "refuse", or "other": a missing value goes to that last place. As a target it has no
    place for other values: such a row is refused. missing_codes: cells that stand for no value.
    """

    kind: ClassVar[str] = "category"

    name: str
    values: tuple[str, ...]
    missing: MissingRule = "refuse"
    missing_codes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Places of x that it takes."""
        return len(self.values) + 1


@dataclass(frozen=True, slots=True)
class Hashed:
    """A category of many values: one-hot over `places`, by SHA-256 of the column and the value.

    Values that share a place are one to the model. missing: "refuse", or "other": a place more.
    """

    kind: ClassVar[str] = "hash"

    name: str
    places: int
    missing: MissingRule = "refuse"
    missing_codes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Places of x that it takes."""
        return self.places + 1

    def place(self, text: str) -> int:
        """Return the place of a value."""
        digest = hashlib.sha256(f"{self.name}\0{text}".encode()).digest()
        return int.from_bytes(digest[:8]) % self.places


@dataclass(frozen=True, slots=True)
class Dated:
    """A date, as `parts`: days from `since` to `until`, day of the month, month, day of the week.

    Days and the day of the month are a number in [0, 1] each; month and weekday are one-hot.
    format: of a text, as Python's strptime has it. missing: "refuse", or "other": all zeros.
    """

    kind: ClassVar[str] = "date"

    name: str
    format: str
    since: str
    until: str
    parts: tuple[DatePart, ...] = PARTS
    missing: MissingRule = "refuse"
    missing_codes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Places of x that it takes."""
        return sum(WIDTHS[part] for part in self.parts)

    def encoded(self, date: Day) -> npt.NDArray[np.float32]:
        """Return the places of one date (width,)."""
        first = day(self.since)
        span = (day(self.until) - first).days
        places: list[float] = []
        for part in self.parts:
            if part == "days":
                places.append(min(max((date - first).days, 0), span) / span)
            elif part == "day":
                places.append((date.day - 1) / 30)
            else:
                of_part = [0.0] * WIDTHS[part]
                of_part[date.month - 1 if part == "month" else date.weekday()] = 1.0
                places.extend(of_part)
        return np.array(places, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A text, as the whole numbers that a public tokenizer's file makes of it.

    It is cut to `length` numbers, and filled up by the file's own for padding. missing: "refuse",
    or "other": padding alone. A text is the only feature of its table.
    """

    kind: ClassVar[str] = "text"

    name: str
    vocabulary: Vocabulary
    length: int
    missing: MissingRule = "refuse"
    missing_codes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Places of x that it takes."""
        return self.length


Column = Number | Category | Hashed | Dated | Tokenized


@dataclass(frozen=True, slots=True)
class LabelsGoal:
    """Several labels at once as a target: of each of `columns`, whether it has its second value."""

    columns: tuple[Category, ...]


@dataclass(frozen=True, slots=True)
class CountsGoal:
    """A count as a target: whole numbers from 0; what is above the column's high counts as it."""

    column: Number


@dataclass(frozen=True, slots=True)
class EventGoal:
    """The time to an event as a target: the time, and whether it came then (the second value).

    Where it did not, the row was last seen at that time. cuts: where the public intervals of time
    end, ascending; the first begins at the time's low. After the last cut nothing counts.
    """

    time: Number
    event: Category
    cuts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NextTokenGoal:
    """The next token of a text as a target, at each of its places; the text is the feature."""

    column: Tokenized


Goal = Number | Category | LabelsGoal | CountsGoal | EventGoal | NextTokenGoal


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The row that a table's row becomes: x (width,) float32 in the order of `features`, and y.

    Of a text x is int64. `tacit.datasets.target` defines y for each kind of target. A number is
    scaled by its column. unit: the column with the id of each row's unit, None if each row is a
    unit.
    """

    features: tuple[Column, ...]
    target: Goal
    unit: str | None = None

    @property
    def width(self) -> int:
        """Places of x."""
        return sum(column.width for column in self.features)

    @property
    def text(self) -> Tokenized | None:
        """The text that x is, if it is one."""
        first = self.features[0]
        if isinstance(first, Tokenized):
            return first
        return None

    @property
    def target_columns(self) -> tuple[Number | Category, ...]:
        """The columns that y is made of."""
        target = self.target
        if isinstance(target, LabelsGoal):
            return target.columns
        if isinstance(target, CountsGoal):
            return (target.column,)
        if isinstance(target, EventGoal):
            return (target.time, target.event)
        if isinstance(target, NextTokenGoal):
            return ()
        return (target,)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that are read: the features', then the target's."""
        return (*self.features, *self.target_columns)

    @property
    def names(self) -> list[str]:
        """The names of the columns that are read, and the unit's, each once."""
        names = [column.name for column in self.columns]
        if self.unit is None or self.unit in names:
            return names
        return [*names, self.unit]

    def digest(self) -> bytes:
        """Return SHA-256 of the schema, 32 bytes: two schemas that encode alike have the same."""
        content = {"features": list(map(_plain, self.features)), "target": _plain_goal(self.target)}
        text = json.dumps(content | {"unit": self.unit}, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).digest()


def text_of(value: Value) -> str:
    """Return a category's value as a table writes it: true and false for a boolean."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


# Keys that tacit 0.2 did not know: left out where they say nothing, so that its digests stay.
_LATER = ("center", "scale", "log", "missing_codes")


def _plain_goal(goal: Goal) -> dict[str, object]:
    """Return a target's content: of one column as tacit 0.2 wrote it."""
    if isinstance(goal, LabelsGoal):
        return {"kind": "labels", "columns": list(map(_plain, goal.columns))}
    if isinstance(goal, CountsGoal):
        return {"kind": "counts", "column": _plain(goal.column)}
    if isinstance(goal, EventGoal):
        times = {"time": _plain(goal.time), "event": _plain(goal.event)}
        return {"kind": "event", **times, "cuts": goal.cuts}
    if isinstance(goal, NextTokenGoal):
        return {"kind": "next token"}
    return _plain(goal)


def _plain(column: Column) -> dict[str, object]:
    content = asdict(column)
    if isinstance(column, Tokenized):
        content["vocabulary"] = column.vocabulary.sha256
    for field in fields(column):
        if field.name in _LATER and content[field.name] == field.default:
            del content[field.name]
    return {"kind": type(column).__name__.lower(), **content}
