"""Rows of a published data set count for models whose outputs are not their target's classes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tacit.datasets import Dataset
from tacit.models import build
from tacit.models.losses import Loss, bce_with_logits
from tacit.models.module import module_model
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.choice import private_sum

PLAN = Plan("discrete_gaussian", 1.0, 6, 1.0, 1.0, 1.0, 1e6, 1e-5, rows_max=6)


def picked(output: Tensor, y: Tensor) -> Tensor:
    return -output.gather(0, y.clamp(0, 1).view(1)).sum()


@pytest.mark.parametrize(
    ("outputs", "loss"), [(0, picked), (1, bce_with_logits)], ids=["own loss", "one score"]
)
@pytest.mark.parametrize("alone", [True, False])
def test_every_label_of_the_target_counts(outputs: int, loss: Loss, alone: bool) -> None:
    """A row that does not count is a row of zeros, whose gradient by the weights is 0."""
    model = module_model(
        "test:Net", lambda: nn.Linear(3, outputs or 2), shape=(3,), outputs=outputs, labels=2,
        loss=loss,
    )  # fmt: skip
    rows = Dataset(torch.rand(6, 3) + 1, torch.tensor([0, 1, 1, 0, 1, 1]), 2, "test")
    for label in (0, 1):
        of_label = rows.take(torch.arange(6)[rows.y == label])
        way = private_sum(of_label, model, PLAN, Random(1), rows_alone=alone)
        total = way.compute(torch.zeros(model.size), 1.0).total
        assert model.unflatten(total.double())["weight"].abs().sum() > 0


def test_a_label_that_the_target_has_not_counts_for_nothing() -> None:
    model = build("logistic", (3,), 2)
    rows = Dataset(torch.rand(2, 3) + 1, torch.tensor([2, -1]), 2, "test")
    total = private_sum(rows, model, PLAN, Random(1)).compute(torch.zeros(model.size), 1.0).total
    assert total[: 2 * 3].abs().sum() == 0  # the weights; the public row's gradient is the bias's
