"""Where a row's bins and cells lie among the numbers of an additive model.

Each number has a place: first the bins of all columns, then the cells of all pairs of columns. A
model that has pairs then has a share for each of its terms and for the intercept. The intercept is
last.

Shapes: n rows of `shape`, K columns, T terms (columns and pairs), W places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.models.bins import BinnedColumn
from tacit.models.pair_cells import PairCells

AllPairs = Sequence[PairCells]


def width(columns: Sequence[BinnedColumn], pairs: AllPairs = ()) -> int:
    """Return W, how many places there are."""
    bins = sum(column.bins for column in columns) + sum(pair.bins for pair in pairs)
    shares = len(columns) + len(pairs) + 1 if pairs else 0
    return bins + shares + 1


def joined(columns: Sequence[BinnedColumn], bins: Sequence[Tensor], pairs: AllPairs = ()) -> Tensor:
    """Return the places (n, T + 1) of rows whose bins in each column are `bins`, each (n,).

    The last is that of the intercept, which every row has.
    """
    places, start = [], 0
    for column, numbers in zip(columns, bins, strict=True):
        places.append(numbers + start)
        start += column.bins
    for pair in pairs:
        first, second = (torch.from_numpy(cells) for cells in pair.cells)
        places.append(first[bins[pair.first]] + second[bins[pair.second]] + start)
        start += pair.bins
    places.append(torch.full_like(places[0], width(columns, pairs) - 1))
    return torch.stack(places, dim=1)


def places_of_rows(columns: Sequence[BinnedColumn], x: Tensor, pairs: AllPairs = ()) -> Tensor:
    """Return the places (n, T + 1) of the bins and cells of rows x (n, *shape)."""
    flat = x.flatten(1)
    return joined(columns, [column.binned(flat) for column in columns], pairs)


def as_inputs(columns: Sequence[BinnedColumn], x: Tensor, pairs: AllPairs = ()) -> Tensor:
    """Return (n, W): 1/√(K + 1) at the places of rows x (n, *shape), and 0 elsewhere."""
    places = places_of_rows(columns, x, pairs)
    inputs = torch.zeros(len(x), width(columns, pairs), device=x.device)
    return inputs.scatter(1, places, 1 / math.sqrt(len(columns) + 1))
