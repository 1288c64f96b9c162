"""Two columns of a table together, cut into a coarse grid of cells by public constants.

A cell has some neighbouring bins of a number, or a value of a category, on each side. So a row's
cell is a function of its bins alone, and a pair of columns needs no public constant of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.models.bins import BinEdges, BinnedColumn
from tacit.questions.row_parts import PlaceNumbers

MOST_SIDE = 8  # cells of a column in a grid
OTHERS = "others"  # the last cell of a category with more bins than cells


@dataclass(frozen=True)
class PairCells:
    """The grid of two columns. first, second: their places in the model; one, other: themselves.

    Its cells are numbered as the bins of a column: `other` counts fastest.
    """

    first: int
    second: int
    one: BinnedColumn
    other: BinnedColumn

    @property
    def columns(self) -> tuple[str, str]:
        """The names of the two."""
        return self.one.name, self.other.name

    @property
    def name(self) -> str:
        """The columns, in one word."""
        return " × ".join(self.columns)

    @property
    def sides(self) -> tuple[int, int]:
        """How many cells each column has."""
        return side(self.one), side(self.other)

    @property
    def bins(self) -> int:
        """How many cells there are."""
        rows, columns = self.sides
        return rows * columns

    @property
    def numeric(self) -> bool:
        """Never: a cell is a value, which has a name."""
        return False

    @cached_property
    def cells(self) -> tuple[PlaceNumbers, PlaceNumbers]:
        """Of each bin of either column, what it adds to the number of a row's cell."""
        return cells_of_bins(self.one) * side(self.other), cells_of_bins(self.other)

    @cached_property
    def labels(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What lies in the cells of either column, in words."""
        return _labels(self.one), _labels(self.other)

    def edges(self, number: int) -> BinEdges:
        """Return what lies in cell `number`, as a value."""
        row, column = divmod(number, side(self.other))
        return BinEdges(None, None, f"{self.labels[0][row]} × {self.labels[1][column]}")


def side(column: BinnedColumn) -> int:
    """Return the number of cells that a column is cut into."""
    return min(MOST_SIDE, column.bins)


def cells_of_bins(column: BinnedColumn) -> PlaceNumbers:
    """Return the cell (bins,) of each bin: of a number alike wide, of a category the first ones."""
    bins = np.arange(column.bins)
    if column.numeric:
        return bins * side(column) // column.bins
    return np.minimum(bins, side(column) - 1)


def _labels(column: BinnedColumn) -> tuple[str, ...]:
    of_bins = cells_of_bins(column)
    labels = []
    for cell in range(side(column)):
        mine = np.flatnonzero(of_bins == cell)
        first, last = (column.edges(int(place)) for place in (mine[0], mine[-1]))
        if column.numeric:
            labels.append(str(BinEdges(first.low, last.high, None)))
        else:
            labels.append(str(first) if len(mine) == 1 else OTHERS)
    return tuple(labels)
