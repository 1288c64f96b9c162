"""Losses of one example by name, and the same of each example of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.objectives import Objective

Loss = Callable[[Tensor, Tensor], Tensor]  # (output of one example, its y) -> ()


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of one example, a classification's loss.

    output: (classes,); y: () int64. Without an index into the output, which could raise.
    """
    is_label = torch.arange(len(output), device=output.device) == y
    return torch.logsumexp(output, 0) - torch.where(is_label, output, 0).sum()


def mse(output: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of one example, a regression's loss.

    output: () or (1,); y: () float32.
    """
    return functional.mse_loss(output.reshape(()), y)


def bce_with_logits(output: Tensor, y: Tensor) -> Tensor:
    """Return the binary cross-entropy of one example: output () or (1,), y () in {0, 1}."""
    return functional.binary_cross_entropy_with_logits(output.reshape(()), y.to(output.dtype))


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "mse": mse,
    "bce_with_logits": bce_with_logits,
}
# What the losses of `tacit.models.objectives` are called in a run file, by the kind of target.
OBJECTIVE_LOSSES = {
    "labels": "bce_with_logits",
    "counts": "poisson",
    "event": "hazard",
    "tokens": "token_cross_entropy",
    "text": "token_cross_entropy",
}


def chosen_loss(
    name: str | None, classes: int, objective: Objective | None
) -> tuple[Loss | None, int]:
    """Return the loss of a name and a target, and how many outputs it takes of an example.

    name: None: by the target. classes: 0 where the target has none. The loss is None where it is
    the objective's. Raises ConfigError.
    """
    if objective is not None:
        kind = objective.target.kind
        if name not in (None, OBJECTIVE_LOSSES[kind]):
            raise ConfigError(
                f"model.loss={name}: the target is of kind {kind}, whose loss is "
                f"{OBJECTIVE_LOSSES[kind]}; leave loss out"
            )
        return None, objective.target.outputs
    if name is None:
        name = "cross_entropy" if classes else "mse"
    if name not in LOSSES:
        names = dict.fromkeys((*LOSSES, *OBJECTIVE_LOSSES.values()))
        raise ConfigError(
            f'model.loss={name!r}: expected {", ".join(names)} or "module:function", by the target'
        )
    if (name == "cross_entropy" and not classes) or (name == "mse" and classes):
        of_target = "classes" if classes else "a number"
        raise ConfigError(f"model.loss={name}: the target is {of_target}; leave loss out")
    if name == "bce_with_logits" and classes != 2:
        raise ConfigError(f"model.loss={name}: needs a target of two values, not {classes}")
    return LOSSES[name], classes if name == "cross_entropy" else 1


# To learn to map takes torch a second.
_TOGETHER: dict[Loss, Loss] = {
    cross_entropy: partial(functional.cross_entropy, reduction="none"),
    mse: lambda outputs, y: (outputs.reshape(len(y)) - y) ** 2,
    bce_with_logits: lambda outputs, y: functional.binary_cross_entropy_with_logits(
        outputs.reshape(len(y)), y.to(outputs.dtype), reduction="none"
    ),
}


def of_each(loss: Loss) -> Loss:
    """Return `loss` of each example of a batch: (outputs, y (B,)) -> (B,)."""
    return _TOGETHER.get(loss) or torch.func.vmap(loss)
