"""Plain training, without privacy: what an owner's rows teach a model by themselves.

Idea. Adam in small batches, at each of a few step sizes, until a part of the rows that is not
trained on gets no better. The best model by those rows is returned.

Guarantee. None of privacy: the result tells of the rows, so it is for their owner's eyes. The same
rows and seed give the same model on the same machine.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.datasets import Dataset
from tacit.models.building import evaluate
from tacit.models.model_contract import Model
from tacit.models.vectors import mean_gradient

_BATCH = 32
_STEP_SIZES = (0.03, 0.01, 0.001)
_EPOCHS = 40  # at most, of each step size
_PATIENCE = 4  # epochs without a gain
_STEPS = 4_000  # at most, of each step size: large data has fewer epochs
_APART = 0.15  # of the rows, which decide when to stop


def trained_alone(model: Model, start: Tensor, rows: Dataset, seed: int) -> Tensor:
    """Return the parameters (d,) that `rows` lead to from `start` (d,). `rows`: at least two."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    apart = max(1, round(_APART * len(rows)))
    deciding, learning = rows.take(order[:apart]), rows.take(order[apart:])
    best, least = start, evaluate(model, start, deciding)[1]
    for step_size in _STEP_SIZES:
        params, loss = _descended(model, start, learning, deciding, step_size, seed)
        if loss < least:
            best, least = params, loss
    return best


def _descended(
    model: Model, start: Tensor, learning: Dataset, deciding: Dataset, step_size: float, seed: int
) -> tuple[Tensor, float]:
    """Return the best parameters of a descent by `deciding`, and their loss there."""
    generator = torch.Generator().manual_seed(seed)
    params = start.clone()
    optimizer = torch.optim.Adam([params], lr=step_size)
    best, least = start, float("inf")
    waited = steps = 0
    for _ in range(_EPOCHS):
        for batch in torch.split(torch.randperm(len(learning), generator=generator), _BATCH):
            params.grad = mean_gradient(model, params, learning.x[batch], learning.y[batch])
            optimizer.step()
        steps += -(-len(learning) // _BATCH)
        loss = evaluate(model, params, deciding)[1]
        waited = 0 if loss < least else waited + 1
        if loss < least:
            best, least = params.clone(), loss
        if waited == _PATIENCE or steps >= _STEPS:
            break
    return best, least
