"""The contract of a private sum, which an edge role is given and knows nothing else about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from tacit.privacy.private_sum.clipping import Clipped


class NotAlone(Exception):  # noqa: N818  (a verdict on a model and a machine)
    """Drawn rows cannot be computed alone; its text is the reason, for the log."""


class PrivateSum(Protocol):
    """An edge's rows, and one way to add up their clipped gradients: draw, gradients, clip.

    It draws from the edge's own randomness and touches no ledger: `Releaser` charges before it
    calls `compute`, and adds the noise to what that returns.
    """

    @property
    def records(self) -> int:
        """The number of units that a draw draws from."""
        ...

    @property
    def way(self) -> str:
        """How a step is computed, and why not otherwise, for the log: nothing depends on a row."""
        ...

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the sum over the next batch at `params` (d,), each unit clipped to `clip`."""
        ...

    def begin_pass(self) -> None:
        """Begin a pass over all units, where the plan has passes; `compute` takes its batches."""
        ...

    def rehearsals(self) -> list[Callable[[], Clipped]]:
        """Return functions that each do the work of `compute` on public rows.

        A push's delay is measured with the slowest of them.
        """
        ...
