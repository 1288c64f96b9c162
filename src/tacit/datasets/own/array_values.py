"""The values of rows that are arrays of one shape: numbers with public bounds, and a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.datasets.own.rows import Floats, Inputs, RowError
from tacit.datasets.target import NOT_LEARNT, Target

Array = npt.NDArray[Any]
_SAY = "set data.integers above every number, or write another number in its place"


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
class WholeNumbers:
    """Whole numbers from 0 to `below` - 1, which is public; none is cut, and others are refused."""

    below: int

    def inside(self, values: Array) -> npt.NDArray[np.bool_]:
        """Return which of the values are such numbers, as integers or as floats."""
        within = (values >= 0) & (values < self.below)
        if values.dtype.kind == "f":
            within &= np.floor(values) == values
        return np.asarray(within)


@dataclass(frozen=True, slots=True)
class TokensOf:
    """A target of one of `tokens` numbers at each of `length` places, or NOT_LEARNT."""

    tokens: int
    length: int


@dataclass(frozen=True, slots=True)
class Values:
    """x (n, *shape) within `bounds`; y (n,): a class, 0 to goal - 1, or a number within its own.

    Of tokens y is (n, length).

    Errors say what is wrong and where, and never a value.
    """

    shape: tuple[int, ...]
    bounds: Bounds | WholeNumbers
    goal: int | Bounds | TokensOf

    @property
    def integers(self) -> int | None:
        """What the whole numbers of x are below; None: x is float32."""
        if isinstance(self.bounds, WholeNumbers):
            return self.bounds.below
        return None

    @property
    def target(self) -> Target:
        """The kind of target that y is."""
        if isinstance(self.goal, int):
            return Target("classes", tuple(map(str, range(self.goal))))
        if isinstance(self.goal, TokensOf):
            return Target("tokens", tokens=self.goal.tokens, length=self.goal.length)
        return Target("number", low=self.goal.low, span=self.goal.high - self.goal.low)

    def x(self, raw: Array, where: str, first: int) -> Inputs:
        """Return float32 (n, *shape) in [0, 1], or whole numbers in int64.

        Raises RowError, which says `where`, for a nan and for what is none of the whole numbers.
        """
        if isinstance(self.bounds, WholeNumbers):
            outside = np.asarray(~self.bounds.inside(raw).reshape(len(raw), -1).all(axis=1))
            below = self.bounds.below
            what = (
                f"{where}: a number that is not 0 to {below - 1}, as data.integers={below} has it"
            )
            refuse(outside, what, first, _SAY)
            return raw.astype(np.int64)
        missing = np.asarray(np.isnan(raw).reshape(len(raw), -1).any(axis=1))
        refuse(missing, f"{where}: nan", first)
        return self.bounds.scaled(raw)

    def y(self, raw: Array, where: str, first: int) -> npt.NDArray[np.int64] | Floats:
        """Return int64 classes, or float32 in [0, 1].

        Of tokens int64 (n, length). Raises RowError for a nan, or for no class.
        """
        if isinstance(self.goal, TokensOf):
            return _tokens(self.goal, raw, where, first)
        if raw.dtype.kind not in "biuf" or raw.ndim != 1:
            raise RowError(f"{where}: expected a number for each row", first)
        refuse(np.isnan(raw), f"{where}: nan", first)
        if not isinstance(self.goal, int):
            return self.goal.scaled(raw)
        classes = np.clip(raw, -1, self.goal).astype(np.int64)
        wrong = (classes != raw) | (classes < 0) | (classes >= self.goal)
        refuse(wrong, f"{where}: a class that is not 0 to {self.goal - 1}", first)
        return classes


def _tokens(goal: TokensOf, raw: Array, where: str, first: int) -> npt.NDArray[np.int64]:
    outside = ~(WholeNumbers(goal.tokens).inside(raw) | (raw == NOT_LEARNT))
    what = f"{where}: a token that is not 0 to {goal.tokens - 1}, nor {NOT_LEARNT} for none"
    refuse(np.asarray(outside.any(axis=1)), what, first)
    return raw.astype(np.int64)


def refuse(bad: npt.NDArray[np.bool_], what: str, first: int, help_: str = "") -> None:
    """Raise RowError for the first row that is `bad`; row 0 of it is row `first` of the file."""
    if bad.any():
        raise RowError(what, first + int(bad.argmax()), help_=help_)
