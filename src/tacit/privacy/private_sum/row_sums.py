"""Sums over rows alone: every row by the same operations in the same order, then clipped and added.

A product of matrices of a library rounds by where a row stands, and by how many there are. The code
here does not, as it has no products over rows (`tacit.kernels`). So a row's gradient has the same
bits at any place of any batch (tried at every start, `probe.rows_alone`). Only rows that were drawn
need to be computed.

Shapes: R drawn rows, d parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.kernels.layout import SLACK
from tacit.kernels.loading import Library, library
from tacit.models import Model
from tacit.models.zoo.layered import Layered
from tacit.privacy.private_sum.clipping import MAX_INTEGER_ROWS, Clipped, reduced_clip, steps_limit
from tacit.privacy.private_sum.denormals import flushed
from tacit.privacy.private_sum.probe import cancelling, rows_alone
from tacit.privacy.private_sum.row_plan import planned
from tacit.privacy.private_sum.tape_sums import TapeKernel, tape_kernel
from tacit.privacy.private_sum.way import NotAlone

_HELD = 2**17  # gradients' numbers held at a time: they stay in a core's second cache
_SEED = 20240229
# rows at a time: every number up to 16 is tried, and one up to 64
_TRIED = 16
_MOST = 64
# And more than a larger model's are: as many as so many numbers hold, but never without a row
# before the tried one, and one behind it.
_MORE = 40
_MORE_HELD = 2**24
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Drawn:
    """The rows `index` (R,) of x (n, *shape) and y (n,).

    Of units that may have several rows, index: (U, r), and weights: (U, r), of a unit's rows in its
    sum.
    """

    x: Tensor
    y: Tensor
    index: NDArray[np.int64]
    weights: Tensor | None = None


@dataclass(frozen=True, slots=True)
class SumTerms:
    """What a sum keeps to, all of it public.

    clip: C. step: of the integers' grid; None: float64. rows: the most rows that a batch may have,
    which the allowance for rounding is made for.
    """

    clip: float
    step: float | None
    rows: int


class DrawnSums(Protocol):
    """Adds up drawn rows, each computed by itself. way: how, for the log."""

    way: str

    def sum(self, params: Tensor, drawn: Drawn, terms: SumTerms) -> Clipped:
        """Return the sum over drawn rows, at the parameters (d,)."""
        ...


class RowKernel:
    """`example_gradients` of a network of convolutions and dense layers, row by row.

    Its gradients are in an order of its own, `size` numbers of which those at `order` are the
    model's. It keeps nothing between two calls, and may be shared.
    """

    def __init__(self, model: Layered) -> None:
        """Plan the network. ImportError without numba: see `row_kernel`."""
        kernels = library()
        assert kernels is not None
        plan = planned(model)
        self.model = model
        self.size = len(plan.order)
        self._compute = kernels.gradients
        self._deltas = kernels.deltas
        self._plan = plan.table()
        self._taps = np.array(plan.taps, dtype=np.int32)
        self._memory = np.zeros(plan.memory + SLACK, dtype=np.float32)
        self._places = np.array(plan.places, dtype=np.int32)
        order = torch.tensor(plan.order + [-1] * SLACK)
        self._order = torch.where(order < 0, model.size, order)  # after them a zero
        self._same = plan.order == list(range(model.size))
        self._back = torch.argsort(self._order)[: model.size]

    def arrange(self, params: Tensor) -> NDArray[np.float32]:
        """Return the parameters (d,) in the kernel's order, with zeros behind them."""
        if self._same:
            return np.ascontiguousarray(params.numpy())
        filled = torch.cat((params, params.new_zeros(1)))
        return np.ascontiguousarray(filled[self._order].numpy())

    def restore(self, numbers: NDArray[np.generic]) -> Tensor:
        """Return numbers (size,) of the kernel's order as the model has them, (d,)."""
        if self._same:
            return torch.from_numpy(numbers)
        return torch.from_numpy(numbers)[self._back]

    def gradients(
        self,
        params: NDArray[np.float32],
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        index: NDArray[np.int64],
        out: NDArray[np.float32],
    ) -> None:
        """Write out (R, size), the gradients of rows `index` (R,) of x (n, inputs) and y (n,)."""
        hinge = self.model.name == "svm"
        penalty = np.float32(self.model.regularization)
        self._compute(
            self._plan, params, x, y, index, self._memory, self._places, self._taps, hinge,
            penalty, out,
        )  # fmt: skip

    def deltas(
        self,
        params: NDArray[np.float32],
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        index: NDArray[np.int64],
        out: NDArray[np.float32],
    ) -> None:
        """Compute out (R, classes) = d loss / d scores, of a linear model."""
        self._deltas(params, x, y, index, self.model.name == "svm", out)

    def rows(self, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradients of all rows of x, in the kernel's order: for probes and tests."""
        out = np.empty((len(y), self.size), dtype=np.float32)
        index = np.arange(len(y))
        self.gradients(self.arrange(params), x.flatten(1).numpy(), y.numpy(), index, out)
        return torch.from_numpy(out)


def row_kernel(model: Model) -> RowKernel | TapeKernel | None:
    """Return the kernel for `model`; None without numba or a kernel for a layer or its loss."""
    if library() is None:
        return None
    if type(model) is not Layered:
        return tape_kernel(model)
    if model.objective is not None:
        return None
    return RowKernel(model)


class RowSums:
    """`integer_sum` and `clipped_sum` of the gradients of drawn rows, computed row by row.

    Guarantee: that of `integer_sum` or `clipped_sum` on those rows, with the other rows' gradients
    the same with and without a record, to the bit. The reason is that `row_kernel` computes a row
    by the same operations in the same order, from the row and the parameters alone. So nothing
    needs slots, and the public row is not computed. Norms are added in float64 in an order of the
    compiler's. A row's integers are checked exactly all the same, and float64's allowance covers
    any order (docs/privacy.md, "Rounding"). The edge cases are theirs, too: a row that is not
    finite or is longer than 2^60 adds zero, no row is a sum of zeros.

    It takes time in proportion to R, which is secret. So the caller must hide that time: a push has
    to leave at a time that does not depend on it.
    """

    way = "drawn rows alone"

    def __init__(self, model: Model, kernel: RowKernel | TapeKernel, kernels: Library) -> None:
        """Use `checked` instead, which tries the kernel first."""
        self.model = model
        self._kernel = kernel
        self._kernels = kernels
        self._linear = model.linear and not model.regularization
        if self._linear:
            self._numbers = model.classes
        else:
            self._numbers = kernel.size
        self._block = max(1, _HELD // self._numbers)  # rows at a time

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
        kernels = library()
        kernel = row_kernel(model)
        if kernels is None:
            raise NotAlone("numba is not installed")
        if kernel is None and model.objective is not None:
            raise NotAlone(f"no kernels for the loss of {model.objective.target.kind}")
        if kernel is None:
            raise NotAlone(f"no kernels for a layer of model.name={model.name}")
        sums = cls(model, kernel, kernels)
        most = min(sums._block, _MOST)
        if most >= _MORE:
            more = _MORE
        else:
            more = min(_MORE, max(_FEWEST, _MORE_HELD // model.size))
        sizes = sorted({*range(1, min(most, _TRIED) + 1), more, most})
        if not rows_alone(kernel.rows, model, sizes) or not sums._adds_rows_alone():
            raise NotAlone("on this machine a row's gradient depends on its place in the batch")
        return sums

    def sum(self, params: Tensor, drawn: Drawn, terms: SumTerms) -> Clipped:
        """Return the sum over drawn rows, at the parameters (d,).

        Raises ValueError as `clipped_sum` and `integer_sum`.
        """
        arranged = self._kernel.arrange(params)
        flat = drawn.x.flatten(1).numpy()
        labels = drawn.y.numpy()
        index = drawn.index
        step = terms.step
        integer = np.int32 if terms.rows < MAX_INTEGER_ROWS else np.int64
        steps = np.zeros(self._kernel.size, dtype=np.float64 if step is None else integer)
        reduced = reduced_clip(terms.clip, terms.rows if step is None else 1)
        if step is None:
            limit = 0
        else:
            limit = steps_limit(terms.clip, step)
        for start in range(0, len(index), self._block):
            part = index[start : start + self._block]
            self._add(arranged, flat, labels, part, reduced, step, limit, steps)
        total = self._kernel.restore(steps)
        return Clipped(total if step is None else total.to(torch.int64), terms.clip, step)

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
        """Compute total += the clipped gradients of at most as many rows as are held."""
        kernels = self._kernels
        computed = np.empty((len(index), self._numbers), dtype=np.float32)
        everyone = np.ones(len(index), dtype=np.bool_)
        if isinstance(self._kernel, RowKernel) and self._linear:
            self._kernel.deltas(params, x, y, index, computed)
            if step is None:
                kernels.outer_floats(computed, x, index, everyone, reduced, total)
            else:
                kernels.outer_integers(computed, x, index, reduced, step, limit, total)
            return
        self._kernel.gradients(params, x, y, index, computed)
        if step is None:
            kernels.clip_floats(computed, everyone, reduced, total)
        else:
            kernels.clip_integers(computed, reduced, step, limit, total)

    def _adds_rows_alone(self) -> bool:
        """Check whether a row adds the same integers among others as it does by itself."""
        params, x, y = cancelling(self.model, torch.Generator().manual_seed(_SEED))
        everyone = np.arange(len(y))
        terms = SumTerms(clip=1.0, step=2.0**-12, rows=len(y))

        def total(index: NDArray[np.int64]) -> Tensor:
            with flushed():
                return self.sum(params, Drawn(x, y, index), terms).total

        all_rows = total(everyone)
        return all(
            torch.equal(
                all_rows - total(np.delete(everyone, place)), total(everyone[place : place + 1])
            )
            for place in range(len(y))
        )


@lru_cache(maxsize=64)
def _checked(model: Model) -> RowSums:
    return RowSums._tried(model)
