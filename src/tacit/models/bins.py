"""Columns of a table cut into bins by public constants: what an additive model looks a row up in.

A number's bins have the same width between its public bounds; a category's values are its bins. So
the bin of a row is a function of that row and of public constants alone.

Shapes: n rows of `shape`, K columns, W bins of all columns together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class BinEdges(NamedTuple):
    """What lies in one bin, in the unit of the table: numbers from `low` to `high`, or a value."""

    low: float | None
    high: float | None
    value: str | None

    def __str__(self) -> str:
        """Return it in words: 18 to 24, or the value."""
        if self.low is not None and self.high is not None:
            return f"{self.low:.6g} to {self.high:.6g}"
        return self.value or ""


@dataclass(frozen=True, slots=True)
class BinnedColumn:
    """A column of the model: `width` places of x from `place` on.

    A number (width 1) lies between `low` and `high` as x has it, and is cut into `bins` bins. The
    places of a category are one-hot; its bins are its `values`, and one more for a row that has
    none of them. file_bounds: of a number, its bounds in the unit of the table. log: its logarithm
    lies between them, as `Number.stretched` has it.
    """

    name: str
    place: int
    bins: int
    width: int = 1
    low: float = 0.0
    high: float = 1.0
    values: tuple[str, ...] = ()
    file_bounds: tuple[float, float] | None = None
    log: bool = False

    @property
    def numeric(self) -> bool:
        """Whether its bins are intervals of a number, which have neighbours."""
        return not self.values

    def binned(self, x: Tensor) -> Tensor:
        """Return the bin (n,) of each row of x (n, places).

        Numbers beyond the bounds are in the first or the last bin, and nan is in the first. Each
        number is computed by itself, by single operations in float64, so no row depends on another.
        """
        if not self.numeric:
            own = x[:, self.place : self.place + self.width] > 0.5
            first = own.to(torch.int64).argmax(dim=1)
            return torch.where(own.any(dim=1), first, self.width)
        number = torch.nan_to_num(x[:, self.place].double(), nan=self.low).clamp(
            self.low, self.high
        )
        part = (number - self.low) / (self.high - self.low)
        return torch.floor(part * self.bins).clamp(max=self.bins - 1).to(torch.int64)

    def edges(self, number: int) -> BinEdges:
        """Return what lies in bin `number`, in the unit of the table where that is known."""
        if not self.numeric:
            return BinEdges(None, None, (*self.values, "none")[number])
        low, high = self.file_bounds or (self.low, self.high)
        return BinEdges(self._at(low, high, number), self._at(low, high, number + 1), None)

    def _at(self, low: float, high: float, cut: int) -> float:
        """Return the number at a cut between two bins."""
        part = cut / self.bins
        if not self.log:
            return low + (high - low) * part
        if low > 0:
            return low * math.exp(math.log(high / low) * part)
        return low + math.expm1(math.log1p(high - low) * part)


def number_column(name: str, place: int, bins: int, low: float, high: float) -> BinnedColumn:
    """Return the column of a number whose unit is that of x."""
    return BinnedColumn(name, place, bins, low=low, high=high)


def category_column(name: str, place: int, values: tuple[str, ...], width: int) -> BinnedColumn:
    """Return the column of a category that takes `width` one-hot places, named by `values`."""
    named = (*values, *("other",) * (width - len(values)))
    return BinnedColumn(name, place, width + 1, width=width, values=named)
