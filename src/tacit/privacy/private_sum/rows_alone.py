"""The way of drawn rows alone: each is computed by itself, and only they are.

Shapes: R drawn rows, d parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows
from tacit.kernels.loading import Library, library
from tacit.models import Model
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan, padded_size
from tacit.privacy.private_sum.clipping import MAX_INTEGER_ROWS, Clipped, reduced_clip, steps_limit
from tacit.privacy.private_sum.denormals import flushed
from tacit.privacy.private_sum.probe import cancelling, rows_alone
from tacit.privacy.private_sum.rehearsal import rehearsed
from tacit.privacy.private_sum.row_kernel import RowKernel, row_kernel
from tacit.privacy.private_sum.sampling import drawn_rows
from tacit.privacy.private_sum.way import NotAlone

_HELD = 2**17  # gradients' numbers held at a time: they stay in a core's second cache
_SEED = 20240229
_TRIED, _MOST = 16, 64  # rows at a time: every number up to 16 is tried, and one up to 64
# And more than a larger model's are: as many as so many numbers hold, but never without a row
# before the tried one, and one behind it.
_MORE, _MORE_HELD, _FEWEST = 40, 2**24, 3
_FAR = 1e-9  # probability that a draw has more rows than a push's delay is made for


class RowsAlone:
    """The private sum over a fresh draw, of which nothing but the drawn rows is computed.

    The time of a step grows with the number of rows drawn, which is secret: so messages must leave
    at a time that does not depend on it.
    """

    way = "drawn rows alone"

    def __init__(self, data: EdgeRows, model: Model, plan: Plan, random: Random) -> None:
        """Raise NotAlone where the model or this machine does not allow it."""
        self.model, self.plan, self.random = model, plan, random
        self.records, self.size = data.records, plan.slots
        self.x, self.y = data.x, data.y
        self.sums = self.sums_of(model)

    def sums_of(self, model: Model) -> RowSums:
        """Return what adds up rows of this model. Raises NotAlone."""
        return RowSums.checked(model)

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the clipped sum over the rows of a fresh draw, and no others."""
        return self._sum(params, self.x, self.y, self.draw(), clip)

    def draw(self) -> NDArray[np.int64]:
        """Draw the rows of a fresh Poisson batch, without slots: their numbers (R,)."""
        return drawn_rows(self.records, self.plan.sampling_rate, self.size, self.random)

    def rehearsals(self) -> list[Callable[[], Clipped]]:
        """Return the sum over as many public rows as a real draw exceeds with probability 1e-9."""
        rows = padded_size(self.plan.most_rows, self.plan.sampling_rate, _FAR)
        return [
            partial(self._sum, task.params, task.x, task.y, np.arange(rows), self.plan.clip_max)
            for task in rehearsed(self.model, rows)
        ]

    def _sum(
        self, params: Tensor, x: Tensor, y: Tensor, index: NDArray[np.int64], clip: float
    ) -> Clipped:
        step = self.plan.step(clip)
        return self.sums.sum(params, x, y, index, clip, step=step, rows=self.size)


class RowSums:
    """`integer_sum` and `clipped_sum` of the gradients of drawn rows, computed row by row.

    Guarantee: that of `integer_sum` or `clipped_sum` on those rows, with the other rows' gradients
    the same with and without a record, to the bit: `row_kernel` computes a row by the same
    operations in the same order, from the row and the parameters alone. So nothing needs slots, and
    the public row is not computed. Norms are added in float64 in an order of the compiler's; a
    row's integers are checked exactly all the same, and float64's allowance covers any order
    (docs/privacy.md, "Rounding"). The edge cases are theirs, too: a row that is not finite or is
    longer than 2^60 adds zero, no row is a sum of zeros.

    It takes time in proportion to R, which is secret. So the caller must hide that time: a push has
    to leave at a time that does not depend on it.
    """

    def __init__(self, model: Model, kernel: RowKernel, kernels: Library) -> None:
        """Use `checked` instead, which tries the kernel first."""
        self.model, self._kernel, self._kernels = model, kernel, kernels
        self._linear = model.linear and not model.regularization
        self._numbers = model.classes if self._linear else kernel.size
        self._held = max(1, _HELD // self._numbers)  # rows at a time

    @classmethod
    def checked(cls, model: Model) -> RowSums:
        """Return sums for `model`, tried on this machine and kept for the process.

        A trial has parameters that cancel, every number of rows that is computed at a time (up to
        16), every place, beside rows of zeros, strange and overflowing ones. Raises NotAlone where
        there is no kernel for the model, or the kernel fails its trial.
        """
        return _checked(model)

    @classmethod
    def _tried(cls, model: Model) -> RowSums:
        kernels, kernel = library(), row_kernel(model)
        if kernels is None:
            raise NotAlone("numba is not installed")
        if kernel is None:
            raise NotAlone(f"no kernels for a layer of model.name={model.name}")
        sums = cls(model, kernel, kernels)
        most = min(sums._held, _MOST)
        more = _MORE if most >= _MORE else min(_MORE, max(_FEWEST, _MORE_HELD // model.size))
        sizes = sorted({*range(1, min(most, _TRIED) + 1), more, most})
        if not rows_alone(kernel.rows, model, sizes) or not sums._adds_rows_alone():
            raise NotAlone("on this machine a row's gradient depends on its place in the batch")
        return sums

    def sum(
        self,
        params: Tensor,
        x: Tensor,
        y: Tensor,
        index: NDArray[np.int64],
        clip: float,
        *,
        step: float | None,
        rows: int,
    ) -> Clipped:
        """Over the rows `index` (R,) of x (n, *shape) and y (n,), all of them drawn.

        params (d,). step: of the integers' grid; None: float64. rows: the most rows that a batch
        may have, a public number, which the allowance for rounding is made for.
        Raises ValueError as `clipped_sum` and `integer_sum`.
        """
        given, flat, labels = self._kernel.arrange(params), x.flatten(1).numpy(), y.numpy()
        whole = np.int32 if rows < MAX_INTEGER_ROWS else np.int64
        steps = np.zeros(self._kernel.size, dtype=np.float64 if step is None else whole)
        reduced = reduced_clip(clip, rows if step is None else 1)
        limit = 0 if step is None else steps_limit(clip, step)
        for start in range(0, len(index), self._held):
            part = index[start : start + self._held]
            self._add(given, flat, labels, part, reduced, step, limit, steps)
        total = self._kernel.restore(steps)
        return Clipped(total if step is None else total.to(torch.int64), clip, step)

    def _add(
        self,
        params: NDArray[np.float32],
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        index: NDArray[np.int64],
        reduced: float,
        step: float | None,
        limit: int,
        total: NDArray[np.generic],
    ) -> None:
        """total += the clipped gradients of at most as many rows as are held."""
        kernels = self._kernels
        found = np.empty((len(index), self._numbers), dtype=np.float32)
        everyone = np.ones(len(index), dtype=np.bool_)
        if self._linear:
            self._kernel.deltas(params, x, y, index, found)
            if step is None:
                kernels.outer_floats(found, x, index, everyone, reduced, total)
            else:
                kernels.outer_integers(found, x, index, reduced, step, limit, total)
            return
        self._kernel.gradients(params, x, y, index, found)
        if step is None:
            kernels.clip_floats(found, everyone, reduced, total)
        else:
            kernels.clip_integers(found, reduced, step, limit, total)

    def _adds_rows_alone(self) -> bool:
        """Whether a row adds the same whole numbers among others as it does by itself."""
        params, x, y = cancelling(self.model, torch.Generator().manual_seed(_SEED))
        everyone, clip = np.arange(len(y)), 1.0

        def total(index: NDArray[np.int64]) -> Tensor:
            with flushed():
                found = self.sum(params, x, y, index, clip, step=clip / 2**12, rows=len(y))
            return found.total

        whole = total(everyone)
        return all(
            torch.equal(whole - total(np.delete(everyone, one)), total(everyone[one : one + 1]))
            for one in range(len(y))
        )


@lru_cache(maxsize=64)
def _checked(model: Model) -> RowSums:
    return RowSums._tried(model)
