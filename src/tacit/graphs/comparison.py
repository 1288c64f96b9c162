"""Whether a graph gives what the code gave that it was frozen of, on public rows.

A branch on numbers that torch could not see was decided by the rows that it had.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tacit.errors import FROM_OWN_CODE

ACROSS_ROWS = (
    "an example's output depends on the other examples of its batch, or on chance; use layers that "
    "look at one example"
)
OTHER_STEPS = "takes other steps for other numbers (an if, item()); use torch.where"
_FACTORS = (-1.0, 100.0, -100.0, 0.0)  # of rows, to find what numbers in [0, 1) do not show


def far_rows(x: Tensor, below: int | None) -> list[Tensor]:
    """Return rows far from the public rows x, inside the declared values.

    Whole numbers, below `below`, are all the least, all the largest, or turned round.
    """
    if below is None:
        return [factor * row for factor in _FACTORS for row in x]
    most = torch.full_like(x[0], below - 1)
    return [torch.zeros_like(most), most, *(most - x)]


def alike(graph: Tensor, code: Callable[[], Tensor]) -> bool:
    """Check whether a graph's output of a row is that of its code, but for rounding.

    Where the code raises, the graph gives something that is not finite.
    """
    try:
        output = code().reshape(graph.shape)
    except FROM_OWN_CODE:
        return not graph.isfinite().all()
    most = float(output.nan_to_num(0, 0, 0).abs().max()) if output.numel() else 0.0
    return torch.allclose(output, graph, 1e-3, 1e-4 * max(1.0, most), equal_nan=True)
