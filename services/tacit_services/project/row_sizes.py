"""How long the rows of a public sample are, and how alike: what the steps of a linear model need.

    x   a row as the model sees it, with a 1 after it for the bias
    r   the median length of x
    λ   the largest mean square of the rows along any direction, of E[x·xᵀ]

A linear model's gradient is x times what its answer lacks, which is at most √2 long. So r is about
the length of a wrongly answered row's gradient, and a clip norm of r leaves most rows as they are.
A clip norm far below r makes all rows count alike. A probability then settles where no row's
gradient is clipped, and not at the share of rows, so the model is too sure.

The loss bends by at most λ/2 along any direction. It bends by about half of that where most answers
are not in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

_MOST_ROWS = 20_000
_MOST_NUMBERS = 2**24  # of all rows that are looked at
_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class RowSizes:
    """r and λ of some rows."""

    length: float
    mean_square: float


def row_sizes(blocks: Iterable[Any]) -> RowSizes:
    """Return the sizes of public rows, float (n, width) a block; at least one row.

    >>> row_sizes([np.array([[1.0], [-1.0]])])
    RowSizes(length=1.414..., mean_square=1.0...)
    """
    collected: list[Any] = []
    count = 0
    for block in blocks:
        most = min(_MOST_ROWS, _MOST_NUMBERS // (block.shape[1] + 1)) - count
        if most <= 0:
            break
        collected.append(block[:most])
        count += len(collected[-1])
    rows = np.concatenate(collected).astype(np.float64)
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    length = float(np.median(np.linalg.norm(rows, axis=1)))
    return RowSizes(length, _largest_mean_square(rows))


def _largest_mean_square(rows: Any) -> float:
    """Return λ by power iteration, from the direction of the bias, which no row lacks."""
    direction = np.zeros(rows.shape[1])
    direction[-1] = 1.0
    mean_square = 1.0
    for _ in range(_ROUNDS):
        pulled = rows.T @ (rows @ direction) / len(rows)
        mean_square = float(np.linalg.norm(pulled))
        direction = pulled / mean_square
    return mean_square
