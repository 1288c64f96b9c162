"""Sums over drawn rows of a graph: each goes forward and backward alone.

That a row's gradient is a function of its own numbers is read off the graph (`tacit.graphs`). An
operation of its list is a function of its inputs, and this row is the only example among them. One
thing more can reach a result: where numbers lie. A library's products round by the alignment of
their operands. So every row is copied to the same memory first. Its clipped gradient is then made
of whole numbers, or added in float64 within the allowance for any order.

Shapes: R drawn rows, d parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.graphs.interpreter import one_thread
from tacit.kernels.loading import library
from tacit.models.graph.graph_model import GraphModel, RowGradient, write_parts
from tacit.models.raised import write_or_nan
from tacit.privacy.private_sum.clipping import (
    MAX_INTEGER_ROWS,
    Clipped,
    add_rows,
    clipped_sum,
    integer_sum,
    reduced_clip,
    steps_limit,
)
from tacit.privacy.private_sum.row_sums import Drawn, SumTerms


class GraphSums:
    """`integer_sum` and `clipped_sum` of the gradients of drawn rows, each computed by itself.

    Guarantee: that of `integer_sum` or `clipped_sum` on those rows. The other rows' gradients are
    the same with and without a record, to the bit. Proof: between two rows nothing is kept but the
    total. A row is copied to `self._x` and `self._y`, whose addresses are those of every row.
    `GraphModel.row_gradient` runs listed operations on these copies and the parameters, on one
    thread and at one shape. All memory that it asks for is aligned alike. So the gradient is a
    function of the row and the parameters. A row that is not finite, or is longer than 2^60, adds
    zero. A unit's rows, always equally many, go one after another. Their weighted sum is
    clipped (`add_rows`), and is a function of these rows, their weights and the parameters.

    It takes time in proportion to R, which is secret: the caller must hide that time. One gradient
    is held at a time, of a unit two.
    """

    way = "drawn rows alone, each through its graph"

    def __init__(self, model: GraphModel) -> None:
        """Allocate the memory of one row when the first one comes."""
        self.model = model
        self._gradient = torch.empty((1, model.size))  # of a unit; nan, of a row that raised
        self._part = torch.empty((0, model.size))  # of one row of a unit
        self._x = torch.empty(0)
        self._y = torch.empty(0)

    def sum(self, params: Tensor, drawn: Drawn, terms: SumTerms) -> Clipped:
        """Return the sum over drawn rows, at the parameters (d,).

        Raises ValueError as `clipped_sum` and `integer_sum`.
        """
        adder = Adder(terms, self.model.sizes)
        self._make_room(drawn)
        with one_thread():
            compute = self.model.row_gradient(params)
            for place, rows in enumerate(drawn.index):
                if drawn.weights is None:
                    adder.add(self._parts(compute, drawn, rows))
                else:
                    self._write_unit(compute, drawn, rows, drawn.weights[place])
                    adder.add(self._gradient.split_with_sizes(list(self.model.sizes), 1))
        return adder.clipped()

    def _parts(self, compute: RowGradient, drawn: Drawn, row: np.int64) -> Sequence[Tensor]:
        """Return a row's gradient by trained weights; nan if it raises."""
        parts: list[Tensor] = []
        x, y = self._row(drawn, row)
        write_or_nan(lambda: parts.extend(compute(x, y)), self._gradient)
        return parts or self._gradient.split_with_sizes(list(self.model.sizes), 1)

    def _write_unit(
        self, compute: RowGradient, drawn: Drawn, rows: NDArray[np.int64], weights: Tensor
    ) -> None:
        """Write the weighted sum (1, d) of the gradients of a unit's rows (r,)."""
        if not len(self._part):
            self._part = torch.empty_like(self._gradient)
        self._gradient.zero_()
        for row, weight in zip(rows, weights, strict=True):
            write = partial(_write, compute, *self._row(drawn, row), self._part[0])
            write_or_nan(write, self._part)
            add_rows(self._gradient, self._part, weight.view(1, 1))

    def _row(self, drawn: Drawn, place: np.int64) -> tuple[Tensor, Tensor]:
        """Return a row as a batch of one, and its y, at the addresses of every row."""
        return self._x.copy_(drawn.x[place]), self._y.copy_(drawn.y[place])

    def _make_room(self, drawn: Drawn) -> None:
        shape = (1, *drawn.x.shape[1:])
        if self._x.shape != shape or self._y.dtype != drawn.y.dtype:
            self._x = torch.empty(shape, dtype=drawn.x.dtype)
            self._y = torch.empty(drawn.y.shape[1:], dtype=drawn.y.dtype)


def _write(compute: RowGradient, x: Tensor, y: Tensor, out: Tensor) -> None:
    write_parts(compute(x, y), out)


class Adder:
    """Adds clipped gradients to a total, one at a time.

    A gradient comes in parts, by trained weights, as autograd gives them: they are never put into
    one vector. Its norm is that of all parts together, in float64, and its integers' squares are
    added up over all parts.
    """

    def __init__(self, terms: SumTerms, sizes: Sequence[int]) -> None:
        """Raise ValueError as `clipped_sum` and `integer_sum`."""
        if terms.step is None:
            dtype = torch.float64
        elif terms.rows < MAX_INTEGER_ROWS:
            dtype = torch.int32
        else:
            dtype = torch.int64
        self._terms = terms
        self._reduced = reduced_clip(terms.clip, terms.rows if terms.step is None else 1)
        limit = 0 if terms.step is None else steps_limit(terms.clip, terms.step)
        self._too_long = min(limit + 1, 2**24)
        self._total = torch.zeros(sum(sizes), dtype=dtype)
        self._places = [place.numpy() for place in self._total.split_with_sizes(list(sizes))]
        self._squares = np.empty(len(self._places))
        self._kernels = library()
        self._mask = torch.ones(1, dtype=torch.bool)

    def add(self, parts: Sequence[Tensor]) -> None:
        """Add a gradient, clipped, and cut to whole steps if there are any."""
        if self._kernels is None:
            self._add_plainly(torch.cat([part.reshape(1, -1) for part in parts], 1))
            return
        numbers = [part.reshape(-1).numpy() for part in parts]
        for place, part in enumerate(numbers):
            self._squares[place] = self._kernels.square(part)
        factor = self._kernels.factor_of(self._squares, self._reduced)
        if self._terms.step is None:
            for part, total in zip(numbers, self._places, strict=True):
                self._kernels.add_part_floats(part, factor, total)
        elif not self._add_steps(numbers, factor, self._terms.step) < self._too_long:
            # It never is, as the factor leaves 2^-16 of room: so such a row is taken back.
            self._add_steps(numbers, -factor, self._terms.step)

    def _add_steps(self, numbers: Sequence[NDArray[Any]], factor: float, step: float) -> float:
        """Add whole steps; return the sum of their squares, exact below 2^24."""
        assert self._kernels is not None
        add = self._kernels.add_part
        pairs = zip(numbers, self._places, strict=True)
        return sum(add(part, factor, step, total) for part, total in pairs)

    def _add_plainly(self, gradient: Tensor) -> None:
        clip, step = self._terms.clip, self._terms.step
        if step is None:
            clipped = clipped_sum(gradient, clip, self._mask, self._terms.rows)
        else:
            clipped = integer_sum(gradient, clip, self._mask, step)
        self._total.add_(clipped.total)

    def clipped(self) -> Clipped:
        """Return the sum of all that was added."""
        step = self._terms.step
        total = self._total if step is None else self._total.to(torch.int64)
        return Clipped(total, self._terms.clip, step)
