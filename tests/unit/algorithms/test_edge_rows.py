"""An edge with rows that its model cannot take, or without any row, pushes as all others do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.datasets import Dataset
from tacit.models import Model, build
from tacit.models.vectors import example_gradients
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Plan, Releaser
from tacit.protocol.messages import GlobalModel, Push
from tests.helpers.private_sums import rows_of, sum_of

LOGISTIC, MLP = build("logistic", (1, 1, 4), 3), build("mlp", (1, 1, 4), 3, hidden=(5,))
LSTM = build("lstm", (6,), 20, hidden=(8,))


def edge(model: Model, x: Tensor, y: Tensor, mechanism: Any = "discrete_gaussian") -> GradientEdge:
    plan = Plan(mechanism, 1.0, 4.0, 20.0, 0.1, 10.0, math.inf, 1e-5, rows_max=4)
    releaser = Releaser(plan, Ledger(":memory:", "t"), Random(1))
    rows = sum_of(Dataset(x, y, model.classes, "test"), model, releaser)
    return GradientEdge("edge-0", model, releaser, rows)


def pushes(role: GradientEdge) -> int:
    sent = [
        out for _ in range(3) for out in role.on_message(GlobalModel(1, role.model.init(1), 1.0))
    ]
    return sum(isinstance(out.message, Push) for out in sent)


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian", "knorm"])
def test_an_edge_without_rows_sends_what_others_send(mechanism: str) -> None:
    assert (
        pushes(
            edge(LOGISTIC, torch.zeros(0, 1, 1, 4), torch.zeros(0, dtype=torch.int64), mechanism)
        )
        == 3
    )


@pytest.mark.parametrize("label", [3, -1, 2**40])
@pytest.mark.parametrize("model", [LOGISTIC, MLP], ids=["logistic", "mlp"])
def test_a_label_that_does_not_exist_counts_as_the_public_row(model: Model, label: int) -> None:
    x, good = torch.rand(2, 1, 1, 4), torch.tensor([0, 2])
    role = edge(model, x, torch.tensor([0, label]))
    assert pushes(role) == 3
    assert rows_of(role).x[1].count_nonzero() == 0
    assert torch.equal(rows_of(edge(model, x, good)).x[0], rows_of(role).x[0])


def test_a_word_that_does_not_exist_counts_as_the_public_row() -> None:
    words = torch.randint(20, (2, 6), generator=torch.Generator().manual_seed(1))
    strange = words.clone()
    strange[1, 3] = 20
    role = edge(LSTM, strange, words)
    assert pushes(role) == 3
    assert rows_of(role).x[1].count_nonzero() == 0
    assert rows_of(role).y[1].count_nonzero() == 0


def test_places_of_a_word_are_added_in_one_order_however_many_threads() -> None:
    model, generator = build("lstm", (32,), 500, hidden=(64,)), torch.Generator().manual_seed(1)
    params = model.init(1) * 100
    x, y = torch.zeros(17, 32, dtype=torch.int64), torch.randint(500, (17, 32), generator=generator)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first = example_gradients(model, params, x, y)
        assert all(torch.equal(first, example_gradients(model, params, x, y)) for _ in range(30))
    finally:
        torch.set_num_threads(threads)
