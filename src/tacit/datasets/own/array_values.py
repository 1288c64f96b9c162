"""The values of rows that are arrays of one shape: numbers between public bounds, and a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.datasets.own.rows import Floats, RowError
from tacit.datasets.target import Target

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Public bounds of numbers: smaller and larger ones are cut, and all scaled to [0, 1]."""

    low: float
    high: float

    def scaled(self, values: Array) -> Floats:
        """Return the values, cut and scaled."""
        cut = np.clip(values.astype(np.float64), self.low, self.high)
        return ((cut - self.low) / (self.high - self.low)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Values:
    """x (n, *shape) between `bounds`; y (n,): a class, 0 to goal - 1, or a number within its own.

    Errors say what is wrong and where, and never a value.
    """

    shape: tuple[int, ...]
    bounds: Bounds
    goal: int | Bounds

    @property
    def target(self) -> Target:
        """The kind of target that y is."""
        if isinstance(self.goal, int):
            return Target("classes", tuple(map(str, range(self.goal))))
        return Target("number", low=self.goal.low, span=self.goal.high - self.goal.low)

    def x(self, raw: Array, where: str, first: int) -> Floats:
        """Return float32 (n, *shape) in [0, 1]. Raises RowError, which says `where`, for a nan."""
        missing = np.asarray(np.isnan(raw).reshape(len(raw), -1).any(axis=1))
        refuse(missing, f"{where}: nan", first)
        return self.bounds.scaled(raw)

    def y(self, raw: Array, where: str, first: int) -> npt.NDArray[np.int64] | Floats:
        """Return int64 classes, or float32 in [0, 1].

        Raises RowError for a nan, or for no class.
        """
        if raw.dtype.kind not in "biuf" or raw.ndim != 1:
            raise RowError(f"{where}: expected a number for each row", first)
        refuse(np.isnan(raw), f"{where}: nan", first)
        if not isinstance(self.goal, int):
            return self.goal.scaled(raw)
        classes = np.clip(raw, -1, self.goal).astype(np.int64)
        wrong = (classes != raw) | (classes < 0) | (classes >= self.goal)
        refuse(wrong, f"{where}: a class that is not 0 to {self.goal - 1}", first)
        return classes


def refuse(bad: npt.NDArray[np.bool_], what: str, first: int) -> None:
    """Raise RowError for the first row that is `bad`; row 0 of it is row `first` of the file."""
    if bad.any():
        raise RowError(what, first + int(bad.argmax()))
