"""Aggregation rules: make one vector of several edges' and tolerate that some of them are false.

Each takes the vectors as rows of a matrix (n, d), and how many at either end may be false. Sorting
takes memory of a few times SORTED numbers, beside the vectors themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Rule = Literal["mean", "median", "trimmed"]
MOST = 1000  # vectors that a rule may be asked for: it holds them all until the last has come
SORTED = 1 << 22  # numbers that are sorted at a time


def mean(vectors: Tensor, trim: int = 0) -> Tensor:
    """Return the plain average (d,). It tolerates no false vector: one can put it anywhere."""
    return vectors.mean(0)


def median(vectors: Tensor, trim: int = 0) -> Tensor:
    """Return the median of every coordinate (d,), the mean of the middle two for an even number.

    Yin et al., arXiv:1803.01498, Definition 1. It tolerates fewer than half false vectors.
    """
    ordered = vectors.sort(0).values
    middle = len(vectors) // 2
    if len(vectors) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def trimmed(vectors: Tensor, trim: int = 1) -> Tensor:
    """Return the average (d,) of every coordinate without its `trim` largest and smallest.

    Yin et al., arXiv:1803.01498, Definition 2. It tolerates `trim` false vectors. Of fewer than
    2·trim + 1 vectors it leaves out as many as still leave one or two.
    """
    cut = min(trim, (len(vectors) - 1) // 2)
    return vectors.sort(0).values[cut : len(vectors) - cut].mean(0)


RULES: dict[Rule, Callable[[Tensor, int], Tensor]] = {
    "mean": mean,
    "median": median,
    "trimmed": trimmed,
}


def combine(rule: Rule, vectors: list[Tensor], trim: int) -> Tensor:
    """Return one vector (d,) made of `vectors`, each (d,), by the rule of this name."""
    if rule == "mean":
        return mean(torch.stack(vectors))
    columns = max(1, SORTED // len(vectors))
    parts = zip(*(torch.split(vector, columns) for vector in vectors), strict=True)
    return torch.cat([RULES[rule](torch.stack(part), trim) for part in parts])
