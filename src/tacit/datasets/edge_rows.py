"""The private rows of one edge, as its role reads them: indexed, never copied as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The people whom the rows are of, where one person may have several.

    order: row numbers (n,), unit by unit. starts: (units + 1,), where each unit begins in `order`.
    limit: the most rows of a unit that count in one draw, a public number. mean: whether a unit's
    gradient is the mean of its rows' gradients, or their sum.
    """

    order: Index
    starts: Index
    limit: int
    mean: bool

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True, slots=True, eq=False)
class EdgeRows:
    """x (n + 1, *shape) and y (n + 1, ...): an edge's n rows, and after them the public row.

    The public row is all zeros; it stands in the empty slots of a batch. units: None where each row
    is a unit by itself.
    """

    x: torch.Tensor
    y: torch.Tensor
    units: Units | None = None

    @property
    def records(self) -> int:
        """The number of units, which a draw draws from."""
        if self.units is None:
            return len(self.y) - 1
        return len(self.units)

    def for_edge(self, classes: int) -> EdgeRows:
        """Return these rows as they are: their classes were checked when they were read."""
        return self
