"""Sums over drawn rows of a graph: each goes forward and backward alone.

That a row's gradient is a function of its own numbers is read off the graph (`tacit.graphs`). An
operation of its list is a function of its inputs, and this row is the only example among them. One
thing more can reach a result: where numbers lie. A library's products round by the alignment of
their operands. So every row is copied to the same memory first. Its clipped gradient is then made
of whole numbers, or added in float64 within the allowance for any order.

Shapes: R drawn rows, d parameters.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.graphs.interpreter import one_thread
from tacit.kernels.loading import library
from tacit.models.graph.graph_model import GraphModel, RowGradient
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
        self._gradient = torch.empty((1, model.size))
        self._part = torch.empty((0, model.size))  # of one row of a unit
        self._x = torch.empty(0)
        self._y = torch.empty(0)

    def sum(self, params: Tensor, drawn: Drawn, terms: SumTerms) -> Clipped:
        """Return the sum over drawn rows, at the parameters (d,).

        Raises ValueError as `clipped_sum` and `integer_sum`.
        """
        adder = _Adder(terms, self.model.size)
        self._make_room(drawn)
        with one_thread():
            write = self.model.row_gradient(params)
            for place, rows in enumerate(drawn.index):
                if drawn.weights is None:
                    self._write(write, drawn, rows, self._gradient)
                else:
                    self._write_unit(write, drawn, rows, drawn.weights[place])
                adder.add(self._gradient)
        return adder.clipped()

    def _write(self, write: RowGradient, drawn: Drawn, row: np.int64, out: Tensor) -> None:
        """Write a row's gradient into `out` (1, d); nan if it raises."""
        x, y = self._row(drawn, row)
        write_or_nan(partial(write, x, y, out[0]), out)

    def _write_unit(
        self, write: RowGradient, drawn: Drawn, rows: NDArray[np.int64], weights: Tensor
    ) -> None:
        """Write the weighted sum (1, d) of the gradients of a unit's rows (r,)."""
        if not len(self._part):
            self._part = torch.empty_like(self._gradient)
        self._gradient.zero_()
        for row, weight in zip(rows, weights, strict=True):
            self._write(write, drawn, row, self._part)
            add_rows(self._gradient, self._part, weight.view(1, 1))

    def _row(self, drawn: Drawn, place: np.int64) -> tuple[Tensor, Tensor]:
        """Return a row as a batch of one, and its y, at the addresses of every row."""
        return self._x.copy_(drawn.x[place]), self._y.copy_(drawn.y[place])

    def _make_room(self, drawn: Drawn) -> None:
        shape = (1, *drawn.x.shape[1:])
        if self._x.shape != shape or self._y.dtype != drawn.y.dtype:
            self._x = torch.empty(shape, dtype=drawn.x.dtype)
            self._y = torch.empty(drawn.y.shape[1:], dtype=drawn.y.dtype)


class _Adder:
    """Adds clipped gradients to a total, one at a time."""

    def __init__(self, terms: SumTerms, size: int) -> None:
        if terms.step is None:
            dtype = torch.float64
        elif terms.rows < MAX_INTEGER_ROWS:
            dtype = torch.int32
        else:
            dtype = torch.int64
        self._terms = terms
        self._total = torch.zeros(size, dtype=dtype)
        self._kernels = library()
        self._used: NDArray[np.bool_] = np.ones(1, dtype=np.bool_)
        self._mask = torch.ones(1, dtype=torch.bool)

    def add(self, gradient: Tensor) -> None:
        """Add a gradient (1, d), clipped, and cut to whole steps if there are any.

        Raises ValueError as `clipped_sum` and `integer_sum`.
        """
        clip, step, rows = self._terms.clip, self._terms.step, self._terms.rows
        numbers = gradient.numpy()
        if step is None:
            if self._kernels is None:
                self._total.add_(clipped_sum(gradient, clip, self._mask, rows).total)
                return
            reduced = reduced_clip(clip, rows)
            self._kernels.clip_floats(numbers, self._used, reduced, self._total.numpy())
        elif self._kernels is None:
            self._total.add_(integer_sum(gradient, clip, self._mask, step).total)
        else:
            limit = steps_limit(clip, step)
            reduced = reduced_clip(clip, 1)
            self._kernels.clip_integers(numbers, reduced, step, limit, self._total.numpy())

    def clipped(self) -> Clipped:
        """Return the sum of all that was added."""
        step = self._terms.step
        total = self._total if step is None else self._total.to(torch.int64)
        return Clipped(total, self._terms.clip, step)
