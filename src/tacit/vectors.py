"""Shapes: params (d,), x (B, *shape), y (B,) -> example_gradients (B, d), mean_gradient (d,)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch.func import grad, vmap

from tacit.models import Model

_Gradients = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@lru_cache(maxsize=16)
def _transformed(model: Model, chunk_size: int | None) -> _Gradients:
    """Kept: building the transformed function costs as much as a small batch."""
    per_example: _Gradients = vmap(
        grad(model.loss), in_dims=(None, 0, 0), randomness="different", chunk_size=chunk_size
    )
    return per_example


def example_gradients(
    model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *, chunk_size: int | None = None
) -> torch.Tensor:
    """Gradient (B, d) of each example's own loss, penalty included; B may be 0.

    `chunk_size` bounds the memory to that many examples' activations at a time, at some cost in speed.
    """
    if len(y) == 0:
        return params.new_zeros((0, model.size))
    return _transformed(model, chunk_size)(params.detach(), x, y)


def mean_gradient(model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Gradient (d,) of the mean loss, penalty included, for the modes without privacy; zeros if B is 0."""
    if len(y) == 0:
        return torch.zeros_like(params)
    with torch.enable_grad():
        leaf = params.detach().requires_grad_()
        loss = model.data_loss(model.logits(leaf, x), y).mean()
        if model.regularization:
            loss = loss + model.penalty(leaf)
        (gradient,) = torch.autograd.grad(loss, leaf)
    return gradient
