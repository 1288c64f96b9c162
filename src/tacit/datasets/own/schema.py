"""The public schema of an own table: which columns are read, and what each becomes.

Every constant stands in the run file and is public: bounds, categories, what a missing value is.
Nothing is computed from the rows, so encoding a row is a function of that row alone.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

MissingRule = Literal["refuse", "other"] | float
Value = str | int | bool


@dataclass(frozen=True, slots=True)
class Number:
    """A number, cut at public bounds and scaled to [0, 1].

    It is one place of x, or a regression's target.

    missing: "refuse", or the number (within the bounds) that a missing value is taken for.
    """

    name: str
    low: float
    high: float
    missing: MissingRule = "refuse"

    @property
    def width(self) -> int:
        """Places of x that it takes."""
        return 1


@dataclass(frozen=True, slots=True)
class Category:
    """A category, one-hot over its values, and one place more for every other value.

    missing: "refuse", or "other": a missing value goes to that last place. As a target it has no
    place for other values: such a row is refused.
    """

    name: str
    values: tuple[str, ...]
    missing: MissingRule = "refuse"

    @property
    def width(self) -> int:
        """Places of x that it takes."""
        return len(self.values) + 1


Column = Number | Category


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The row that a table's row becomes: x (width,) float32 in the order of `features`, and y.

    y is the place in `target.values` (int64), or the target scaled to [0, 1] (float32) where it is
    a number. unit: the column that says whose row it is, None where each row is a unit.
    """

    features: tuple[Column, ...]
    target: Column
    unit: str | None = None

    @property
    def width(self) -> int:
        """Places of x."""
        return sum(column.width for column in self.features)

    @property
    def classes(self) -> int | None:
        """Number of classes; None for a regression."""
        if isinstance(self.target, Category):
            return len(self.target.values)
        return None

    @property
    def names(self) -> list[str]:
        """The columns that are read, each once."""
        names = [column.name for column in (*self.features, self.target)]
        if self.unit is None or self.unit in names:
            return names
        return [*names, self.unit]

    def digest(self) -> bytes:
        """Return SHA-256 of the schema, 32 bytes: two schemas that encode alike have the same."""
        content = {"features": list(map(_plain, self.features)), "target": _plain(self.target)}
        text = json.dumps(content | {"unit": self.unit}, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).digest()


def text_of(value: Value) -> str:
    """Return a category's value as a table writes it: true and false for a boolean."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _plain(column: Column) -> dict[str, object]:
    return {"kind": type(column).__name__.lower(), **asdict(column)}
