"""The gradients of drawn rows alone: every row by the same operations in the same order.

A product of matrices of a library rounds by where a row stands, and by how many there are. What is
here does not, as it has no products over rows (`tacit.kernels`): so a row's gradient has the same
bits at any place of any batch (tried at every start, `privacy.probe.rows_alone`), and only rows
that were drawn need to be computed.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.kernels.layout import SLACK
from tacit.kernels.loading import library
from tacit.models.base import Model
from tacit.models.zoo.layered import Layered
from tacit.privacy.private_sum.row_plan import planned


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
        self.model, self.size = model, len(plan.order)
        self._compute, self._deltas = kernels.gradients, kernels.deltas
        self._plan = plan.table()
        self._taps = np.array(plan.taps, dtype=np.int32)
        self._memory = np.zeros(plan.memory + SLACK, dtype=np.float32)
        self._places = np.array(plan.places, dtype=np.int32)
        order = torch.tensor(plan.order + [-1] * SLACK)
        self._order = torch.where(order < 0, model.size, order)  # after them a zero
        self._same = plan.order == list(range(model.size))
        self._back = torch.argsort(self._order)[: model.size]

    def arrange(self, params: Tensor) -> NDArray[np.float32]:
        """The parameters (d,) in the kernel's order, with zeros behind them."""
        if self._same:
            return np.ascontiguousarray(params.numpy())
        filled = torch.cat((params, params.new_zeros(1)))
        return np.ascontiguousarray(filled[self._order].numpy())

    def restore(self, found: NDArray[np.generic]) -> Tensor:
        """Numbers (size,) of the kernel's order as the model has them, (d,)."""
        return torch.from_numpy(found) if self._same else torch.from_numpy(found)[self._back]

    def gradients(
        self,
        params: NDArray[np.float32],
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        index: NDArray[np.int64],
        out: NDArray[np.float32],
    ) -> None:
        """out (R, size) = the gradients of rows `index` (R,) of x (n, inputs) and y (n,)."""
        hinge, penalty = self.model.name == "svm", np.float32(self.model.regularization)
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
        """out (R, classes) = d loss / d scores, of a linear model."""
        self._deltas(params, x, y, index, self.model.name == "svm", out)

    def rows(self, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The gradients of all rows of x, in the kernel's order: for probes and tests."""
        out = np.empty((len(y), self.size), dtype=np.float32)
        index = np.arange(len(y))
        self.gradients(self.arrange(params), x.flatten(1).numpy(), y.numpy(), index, out)
        return torch.from_numpy(out)


def row_kernel(model: Model) -> RowKernel | None:
    """The kernel for `model`; None where numba or a kernel for one of its layers is missing."""
    if type(model) is not Layered or library() is None:
        return None
    return RowKernel(model)
