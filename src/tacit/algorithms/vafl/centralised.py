"""The centralised reference of VAFL: the same model, trained with all features in one place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tacit.algorithms.vafl.step_rules import Protocol, batch_rows
from tacit.models import Model
from tacit.models.zoo.embedding_networks import Embedding


def centralised(
    protocol: Protocol,
    horizon: int,
    embeddings: Sequence[Embedding],
    head: Model,
    blocks: Sequence[Tensor],
    labels: Tensor,
    regularization: float = 0.0,
) -> tuple[Tensor, list[Tensor]]:
    """Run VAFL's reference: SGD on (1) with all features in one place, nothing stale or noisy.

    blocks: per party (n, *shape), all in the order of labels (n,). Returns θ_0 and every θ_m after
    `horizon` steps.
    """
    parameters = [head.init(protocol.seed)] + [
        e.init(protocol.seed + m) for m, e in enumerate(embeddings)
    ]
    for k in range(horizon):
        rows = batch_rows(protocol, 0, k + 1, len(labels))
        leaves = [p.clone().requires_grad_() for p in parameters]
        with torch.enable_grad():
            h = torch.stack(
                [
                    e.embed(p, x[rows])
                    for e, p, x in zip(embeddings, leaves[1:], blocks, strict=True)
                ],
                1,
            )
            loss = functional.cross_entropy(head.logits(leaves[0], h), labels[rows])
            gradients = torch.autograd.grad(loss, leaves)
        rates = [protocol.steps.server(k)] + [protocol.steps.party(k)] * len(embeddings)
        decay = [0.0] + [regularization] * len(embeddings)
        parameters = [
            p - rate * (g + r * p)
            for p, g, rate, r in zip(parameters, gradients, rates, decay, strict=True)
        ]
    return parameters[0], parameters[1:]
