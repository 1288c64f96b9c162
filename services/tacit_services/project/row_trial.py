"""Tries an own module on private rows, for `tacit check`: has each row a gradient that is finite?

A row whose gradient is not finite counts as zero in every update, and nobody is told. So the owner
is told here, before anything is spent; what is found stays on the owner's screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tacit.datasets import EdgeRows
from tacit.errors import OwnersError
from tacit.models import Model
from tacit.models.vectors import example_gradients

_AT_ONCE = 100  # rows whose gradients are in memory at a time
_NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True)
class RowTrial:
    """The rows that were tried, and how many of them count as zero."""

    rows: int
    zero: int


def tried(model: Model, rows: EdgeRows, most: int) -> RowTrial:
    """Try `most` of an edge's rows, at even distances, with the parameters that a run begins at."""
    count = len(rows.y) - 1  # the last is the public row
    places = torch.linspace(0, count - 1, min(most, count)).long()
    params = model.init(1)
    zero = 0
    for chosen in torch.split(places, _AT_ONCE):
        gradients = example_gradients(model, params, rows.x[chosen], rows.y[chosen])
        zero += int((~gradients.isfinite().all(dim=1)).sum())
    return RowTrial(len(places), zero)


def remarks(trials: list[RowTrial]) -> Iterator[str]:
    """Yield what the owner should know. Raises OwnersError where nearly all rows count as zero."""
    rows = sum(trial.rows for trial in trials)
    zero = sum(trial.zero for trial in trials)
    if not zero:
        return
    why = (
        "a gradient that is not finite, and count as zero: the model learns nothing from them. "
        "A logarithm, a root or a division does that where a column is at its bound; "
        "log(x + 1e-4) does not"
    )
    if zero > _NEARLY_ALL * rows:
        raise OwnersError(
            "the model has no finite gradient on nearly all rows",
            f"{zero:,} of {rows:,} rows that were tried have {why}",
        )
    yield f"{zero:,} of {rows:,} rows that were tried have {why}"
