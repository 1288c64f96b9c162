"""The linear model of a number: its gradients, clipped and summed as any model's."""

from __future__ import annotations

import math

import pytest
import torch

from tacit import config
from tacit.datasets.edge_rows import EdgeRows
from tacit.models.vectors import example_gradients
from tacit.models.zoo.as_modules import as_module
from tacit.models.zoo.linear import linear
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Mechanism, Plan, Releaser
from tests.helpers.private_sums import sum_of

MODEL = linear((3,))
ROWS = 20


def some_rows() -> EdgeRows:
    chance = torch.Generator().manual_seed(1)
    x, y = MODEL.random_batch(ROWS + 1, chance)
    x[-1], y[-1] = 0, 0
    return EdgeRows(x, y)


def by_hand(params: torch.Tensor, rows: EdgeRows) -> torch.Tensor:
    """Return 2(w·x + b - y)·(x, 1) of each row."""
    x, y = rows.x[:-1], rows.y[:-1]
    longer = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    return 2 * (longer @ params - y)[:, None] * longer


def test_a_rows_gradient_is_that_of_the_square() -> None:
    rows, params = some_rows(), torch.tensor([0.3, -1.0, 2.0, 0.5])
    gradients = example_gradients(MODEL, params, rows.x[:-1], rows.y[:-1])
    assert torch.allclose(gradients, by_hand(params, rows), atol=1e-6)


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian"])
def test_its_private_sum_is_of_clipped_gradients(mechanism: Mechanism) -> None:
    rows, params = some_rows(), torch.tensor([0.3, -1.0, 2.0, 0.5])
    plan = Plan(mechanism, 1.0, ROWS, 1.0, 0.1, 10.0, math.inf, 1e-5, rows_max=ROWS)
    summed = sum_of(rows, MODEL, Releaser(plan, Ledger(":memory:", "t"), Random(1)))
    clipped = summed.compute(params, 0.5)
    each = by_hand(params, rows).double()
    due = (each * (0.5 / each.norm(dim=1, keepdim=True)).clamp(max=1)).sum(dim=0)
    step = clipped.step or 1.0
    assert torch.allclose(
        (clipped.total * step).double(), due, atol=ROWS * step if clipped.step else 1e-3
    )


def test_it_begins_at_zero_and_is_a_module_of_torchs() -> None:
    assert not MODEL.init(1).any()
    assert set(as_module(MODEL, 1).state_dict()) == {"dense1.weight", "dense1.bias"}


def test_for_classes_its_name_means_logistic() -> None:
    text = (
        'run.updates = 5\ndata.dataset = "digits"\nmodel.name = "linear"\nalgorithm.name = "audp"'
    )
    assert config.parse(text, "run.toml").build_model().name == "logistic"
