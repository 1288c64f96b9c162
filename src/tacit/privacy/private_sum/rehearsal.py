"""Public rows that a step is rehearsed on, to measure the delay of an edge's pushes.

tacit's own networks, and layers that are seen, do the same work for all numbers. They are rehearsed
on random rows. A user's module is rehearsed on a grid, also of zeros and of rows that overflow. A
module whose steps may follow a row's numbers is rehearsed at other parameters, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from tacit.models import Model

_LENGTHS = (1.0, 0.0, 1e30)  # factors on random rows
_SAME = (0.0, 1.0, -1.0)  # parameters that are all alike


class Rehearsed(NamedTuple):
    """Parameters (d,) and public rows x (n, *shape), y (n,)."""

    params: Tensor
    x: Tensor
    y: Tensor


def rehearsed(model: Model, rows: int) -> Iterator[Rehearsed]:
    """Yield all that a step of `model` is rehearsed on, `rows` rows at a time."""
    params = model.init(1)
    x, y = model.random_batch(rows, torch.Generator().manual_seed(1))
    bounded = model.traced or not x.is_floating_point()
    for length in _LENGTHS[:1] if bounded else _LENGTHS:
        inputs = x if length == 1 else x * length
        yield Rehearsed(params, inputs, y)
        for number in _SAME if model.trusted else ():
            yield Rehearsed(torch.full_like(params, number), inputs, y)
