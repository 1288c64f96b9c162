"""The second moments of all rows of an edge, in whole numbers: XᵀX, its upper half, and Xᵀy.

Idea. A row x has a constant after it. It is made as long as its budget allows, with its targets r.
All its numbers are cut to whole ones, u and r. The products of whole numbers are added
exactly, over all rows. Then the bits that the noise has no use for are cut off, at random.

Guarantee. A unit's moments have an l2 norm of at most 29M² (`MomentGrid`): that is checked,
exactly, and a unit that exceeds it counts for nothing. After bits are cut off, one unit more moves
each entry of the sum by one of the two whole numbers beside that unit's own. Which one is drawn
for each entry by itself, as if the unit's own numbers were rounded at random. That holds for any
other rows. So the sums with and without a unit lie at most C apart, but with probability TAIL
(docs/privacy.md, "Second moments").

Shapes: B units at a time, R rows of each, D numbers of a row with its constant, K targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows
from tacit.models import Model
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.moment_grid import BESIDE_DIAGONAL, ON_DIAGONAL, MomentGrid
from tacit.privacy.private_sum.moment_rows import MomentRows
from tacit.privacy.private_sum.sampling import rows_of_units

_BLOCK: Final = 2**22  # numbers worked on at a time
_WORD_BITS: Final = 64
_ROUNDED: Final = 2.0**-10  # more than float64 takes from a root below 2^34

Wholes = NDArray[np.float64]  # whole numbers, which float64 multiplies and adds exactly
MomentTotals = NDArray[Any]  # int64, and float64 where there is no noise
MomentBlock = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]  # x, y, weights


class MomentSums:
    """The sum of the second moments of all units of an edge, with q = 1."""

    way = "all rows, in whole numbers"

    def __init__(
        self, data: EdgeRows, model: Model, rows: MomentRows, plan: Plan, random: Random
    ) -> None:
        """Raise ValueError for a plan that samples rows; ConfigError as `MomentGrid.of`."""
        if plan.sampling_rate != 1:
            raise ValueError(f"q={plan.sampling_rate}: second moments are of every row")
        plan.check_rows(data.records)
        self.data = data
        self.model = model
        self.rows = rows
        self.plan = plan
        self.random = random
        self.grid = MomentGrid.of(plan, rows.features, rows.targets) if plan.private else None

    @property
    def records(self) -> int:
        """The number of units."""
        return self.data.records

    def begin_pass(self) -> None:
        """Do nothing: there are no passes."""

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the sum over all units, each within `clip`; `params` plays no part.

        Without noise it is divided by L, as nothing else does that then.
        """
        return self._sum(self._units(), clip)

    def rehearsals(self) -> list[Callable[[], Clipped]]:
        """Return the sum over as many public units as this edge may have."""
        return [partial(self._sum, self._public(), self.plan.clip_max)]

    def _sum(self, blocks: Iterator[MomentBlock], clip: float) -> Clipped:
        if self.grid is None:
            square, cross = self._added(blocks, 1.0)
            return Clipped(torch.from_numpy(packed(square, cross)) / self.plan.batch, math.inf)
        step = self.plan.step(clip)
        assert step is not None
        square, cross = self._added(blocks, self.grid.scale)
        np.fill_diagonal(square, ON_DIAGONAL * np.diagonal(square))
        beside = ~np.eye(len(square), dtype=bool)
        square[beside] *= BESIDE_DIAGONAL
        return Clipped(self.cut(packed(square, ON_DIAGONAL * cross)), clip, step)

    def cut(self, total: NDArray[np.int64]) -> Tensor:
        """Return exact sums (W,) in steps: bits are cut off after random ones were added."""
        assert self.grid is not None
        chance = self.random.words(len(total)) >> np.uint64(_WORD_BITS - self.grid.bits)
        return torch.from_numpy((total + chance.astype(np.int64)) >> self.grid.bits)

    def _added(
        self, blocks: Iterator[MomentBlock], scale: float
    ) -> tuple[MomentTotals, MomentTotals]:
        """Return XᵀX (D, D) and Xᵀy (D, K) of all blocks' rows, in whole numbers of 1/scale.

        Without a grid they are float64, and not cut.
        """
        kind: type[np.generic] = np.float64 if self.grid is None else np.int64
        square: MomentTotals = np.zeros((self.rows.features, self.rows.features), kind)
        cross: MomentTotals = np.zeros((self.rows.features, self.rows.targets), kind)
        for block in blocks:
            x, y = self.whole(block, scale)
            square += (x.T @ x).astype(kind)
            cross += (x.T @ y).astype(kind)
        return square, cross

    def whole(self, block: MomentBlock, scale: float) -> tuple[Wholes, Wholes]:
        """Return the rows (B·R, D) and their targets (B·R, K) of a block, as they are multiplied.

        With a grid they are whole numbers, and those of a unit that is too long are zeros.
        """
        x, y, weights = block
        rows = np.sqrt(weights.ravel())[:, None] * scale
        scaled, targets = self.rows.scaled(x.reshape(-1, x.shape[-1]), y.ravel())
        scaled, targets = scaled * rows, targets * rows
        if self.grid is None:
            return scaled, targets
        scaled, targets = np.trunc(scaled), np.trunc(targets)
        fits = np.repeat(self.fits(scaled, targets, x.shape[1]), x.shape[1])[:, None]
        return np.where(fits, scaled, 0.0), np.where(fits, targets, 0.0)

    def fits(self, x: Wholes, y: Wholes, rows: int) -> NDArray[np.bool_]:
        """Check exactly which units' moments are short enough (B,), of `rows` rows each."""
        assert self.grid is not None
        most = self.grid.length**2
        # Cut at a length that does not fit, so that no product leaves int64.
        squares = np.minimum(np.square(x).sum(axis=1), 2 * most).astype(np.int64)
        both = squares + np.minimum(np.square(y).sum(axis=1), 4 * most).astype(np.int64)
        # No root is above the whole number after it, also where float64 has rounded the product.
        roots = np.floor(np.sqrt(squares * both) + _ROUNDED).astype(np.int64) + (squares > 0)
        fits: NDArray[np.bool_] = roots.reshape(-1, rows).sum(axis=1) <= most
        return fits

    def _units(self) -> Iterator[MomentBlock]:
        """Yield the units' rows x (B, R, D - 1), classes or numbers y (B, R) and weights (B, R)."""
        units = self.data.units
        for numbers in torch.split(torch.arange(self.records), self._at_a_time):
            if units is None:
                rows, weights = numbers[:, None], np.ones((len(numbers), 1))
            else:
                rows, drawn = rows_of_units(units, numbers, self.random)
                weights = drawn.double().numpy() / (1 if units.mean else units.limit)
            x = self.data.x[rows].flatten(2).double().numpy()
            yield x, self.data.y[rows].numpy(), weights

    def _public(self) -> Iterator[MomentBlock]:
        """Yield random rows of as many units as this edge may have, of no data."""
        limit = 1 if self.data.units is None else self.data.units.limit
        chance = torch.Generator().manual_seed(1)
        x, y = self.model.random_batch(self._at_a_time * limit, chance)
        block = x.flatten(1).double().numpy().reshape(-1, limit, self.rows.features - 1)
        for numbers in torch.split(torch.arange(self.plan.most_rows), self._at_a_time):
            count = len(numbers)
            weights = np.full((count, limit), 1 / limit)
            yield block[:count], y.view(-1, limit)[:count].numpy(), weights

    @property
    def _at_a_time(self) -> int:
        limit = 1 if self.data.units is None else self.data.units.limit
        return max(1, _BLOCK // (self.rows.features * limit))


def packed(square: MomentTotals, cross: MomentTotals) -> MomentTotals:
    """Return the upper half of a symmetric (D, D), row by row, and then (D, K), as one vector."""
    return np.concatenate([square[np.triu_indices(len(square))], cross.ravel()])
