"""`example_gradients` of a network that has a tape, row by row."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.kernels.layout import SLACK
from tacit.kernels.loading import library
from tacit.models import Model
from tacit.models.graph.graph_model import GraphModel
from tacit.privacy.private_sum.tape_graphs import laid_graph
from tacit.privacy.private_sum.tape_networks import laid
from tacit.privacy.private_sum.tape_plan import Tape

# A graph's parameters, at most. With 1.2 million a tape takes 0.8 of torch's time row by row; with
# 4.9 million, which no second cache holds, 1.3.
_MOST = 2**21
_NO_WORDS = np.zeros((1, 1), dtype=np.int64)
_NO_NUMBERS = np.zeros((1, 1), dtype=np.float32)


class TapeKernel:
    """Computes the gradients of rows along a tape, each by itself.

    They are in an order of its own, `size` numbers, in which the model's are filled up with zeros.
    It keeps nothing between two calls, and may be shared.
    """

    def __init__(self, model: Model, tape: Tape) -> None:
        """Place the tape. Numba must be there: see `tape_kernel`."""
        kernels = library()
        assert kernels is not None
        self.model = model
        self.size = tape.size
        self._compute = kernels.tape_gradients
        self._tape = tape.finish()
        self._memory = np.zeros(tape.memory + SLACK, dtype=np.float32)
        self._totals = np.zeros(tape.totals)
        order = torch.from_numpy(np.append(tape.order, np.full(SLACK, -1)))
        order = torch.where(order < 0, model.size, order)  # after them a zero
        back = torch.argsort(order[: self.size], stable=True)[: model.size]
        self._order = order.to(torch.int32)
        self._back = back.to(torch.int32)

    def arrange(self, params: Tensor) -> NDArray[np.float32]:
        """Return the parameters (d,) in the tape's order, their copies and zeros behind them."""
        filled = torch.cat((params, params.new_zeros(1)))
        return np.ascontiguousarray(filled.index_select(0, self._order).numpy())

    def restore(self, numbers: NDArray[np.generic]) -> Tensor:
        """Return numbers of the tape's order as the model has them, (d,)."""
        return torch.from_numpy(numbers).index_select(0, self._back)

    def gradients(
        self,
        params: NDArray[np.float32],
        x: NDArray[np.generic],
        y: NDArray[np.int64],
        index: NDArray[np.int64],
        out: NDArray[np.float32],
    ) -> None:
        """Write out (R, size), the gradients of rows `index` (R,) of x (n, inputs) and y (n, …)."""
        spoken = x.dtype.kind == "i"
        if spoken:
            x = x.astype(np.int64, copy=False)
        self._compute(
            self._tape, params, _NO_NUMBERS if spoken else x, x if spoken else _NO_WORDS,
            y.reshape(len(y), -1), index, self._memory, self._totals, self.model.classes,
            np.float32(self.model.regularization), out,
        )  # fmt: skip

    def rows(self, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradients of all rows of x, in the tape's order: for probes and tests."""
        out = np.empty((len(y), self.size), dtype=np.float32)
        arranged = self.arrange(params)
        self.gradients(arranged, x.flatten(1).numpy(), y.numpy(), np.arange(len(y)), out)
        return torch.from_numpy(out)


def tape_kernel(model: Model) -> TapeKernel | None:
    """Return the kernel for `model`; None without numba or a tape for its layers and its loss.

    A large graph has none: torch is quicker then. tacit's own networks have it at any size, as
    these would go in slots otherwise.
    """
    if library() is None:
        return None
    if not isinstance(model, GraphModel):
        tape = laid(model)
    elif model.size <= _MOST:
        tape = laid_graph(model)
    else:
        return None
    if tape is None:
        return None
    return TapeKernel(model, tape)
