"""The additive model: bins by public constants, and residuals that are its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.models.additive import FAR, AdditiveModel, decays
from tacit.models.bins import BinnedColumn, category_column, number_column
from tacit.models.vectors import example_gradients
from tacit.models.zoo.as_modules import construction_of

COLUMNS = (
    number_column("age", 0, 8, 0.0, 1.0),
    category_column("job", 1, ("cook", "nurse"), 3),
    number_column("income", 4, 5, -1.0, 1.0),
)


def model(labels: int = 3) -> AdditiveModel:
    return AdditiveModel("additive", (5,), labels or 1, columns=COLUMNS, labels=labels)


def rows(count: int = 40) -> Tensor:
    chance = torch.Generator().manual_seed(1)
    x = torch.rand(count, 5, generator=chance)
    x[:, 1:4] = torch.eye(3)[torch.randint(3, (count,), generator=chance)]
    x[:, 4] = 2 * x[:, 4] - 1
    return x


def targets(labels: int, count: int = 40) -> Tensor:
    chance = torch.Generator().manual_seed(2)
    if not labels:
        return torch.rand(count, generator=chance)
    return torch.randint(labels, (count,), generator=chance)


def params(of: AdditiveModel, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(of.size, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("labels", [0, 2, 3, 7])
def test_residuals_are_the_gradients_of_the_loss_with_the_other_sign(labels: int) -> None:
    of = model(labels)
    x, y, at = rows(), targets(labels), params(of)
    gradients = example_gradients(of, at, x, y)
    residuals = torch.from_numpy(of.residuals(at, x, y).dense(of.size))
    assert torch.allclose(residuals, -gradients, atol=1e-4)
    assert gradients.abs().max() > 0.05


@pytest.mark.parametrize("labels", [0, 2, 3])
def test_a_gradient_is_as_long_as_its_residual_however_many_columns_there_are(labels: int) -> None:
    of = model(labels)
    x, y, at = rows(), targets(labels), params(of)
    scores = of.logits(at, x).double()
    if labels:
        residual = scores.softmax(1) - torch.nn.functional.one_hot(y, labels)
    else:
        residual = 2 * (scores - y[:, None])
    lengths = np.linalg.norm(of.residuals(at, x, y).values.astype(np.float64), axis=1)
    assert np.allclose(lengths, residual.norm(dim=1), rtol=1e-3, atol=1e-4)


def test_a_row_has_the_same_bits_alone_at_every_place_and_among_strange_rows() -> None:
    of = model(3)
    x, y, at = rows(), targets(3), params(of, 5.0)
    together = of.residuals(at, x, y)
    for place in range(len(x)):
        alone = of.residuals(at, x[place : place + 1], y[place : place + 1])
        assert np.array_equal(alone.values[0], together.values[place])
        assert np.array_equal(alone.places[0], together.places[place])
    strange = torch.full((1, 5), math.inf)
    for before in range(9):
        more = torch.cat([*(strange for _ in range(before)), x])
        shifted = of.residuals(at, more, torch.cat([torch.zeros(before, dtype=torch.int64), y]))
        assert np.array_equal(shifted.values[before:], together.values)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_row_that_is_not_finite_counts_for_nothing(number: float) -> None:
    of = model(2)
    x, y = rows(3), targets(2, 3)
    x[1, 4] = number
    values = of.residuals(params(of), x, y).values
    assert not values[1].any()
    assert values[0].any()
    assert values[2].any()


def test_a_model_that_is_sure_of_a_class_leaves_nothing_of_it_and_all_of_the_others() -> None:
    of = model(3)
    sure = torch.zeros(3, of.width)
    sure[1, -1] = FAR
    y = targets(3)
    lengths = np.linalg.norm(of.residuals(sure.flatten(), rows(), y).values, axis=1)
    assert np.array_equal(lengths > 0, y.numpy() != 1)
    assert np.allclose(lengths[y.numpy() != 1], math.sqrt(2), rtol=1e-6)


def test_bins_are_cut_between_the_public_bounds_and_what_lies_beyond_is_in_the_last() -> None:
    column = number_column("age", 0, 4, 0.0, 1.0)
    x = torch.tensor([[-5.0], [0.0], [0.249], [0.25], [0.999], [1.0], [7.0], [math.nan]])
    assert column.binned(x).tolist() == [0, 0, 0, 1, 3, 3, 3, 0]


def test_a_category_without_a_value_has_a_bin_of_its_own() -> None:
    column = category_column("job", 1, ("cook", "nurse"), 3)
    x = torch.tensor([[9.0, 1, 0, 0], [9, 0, 0, 1], [9, 0, 0, 0]])
    assert column.binned(x).tolist() == [0, 2, 3]
    assert [column.edges(bin_).value for bin_ in range(4)] == ["cook", "nurse", "other", "none"]


@pytest.mark.parametrize(
    ("bounds", "log", "edges"),
    [
        ((0.0, 100.0), False, [(0, 50), (50, 100)]),
        ((1.0, 100.0), True, [(1, 10), (10, 100)]),
        ((0.0, 99.0), True, [(0, 9), (9, 99)]),
    ],
)
def test_edges_are_in_the_unit_of_the_table(
    bounds: tuple[float, float], log: bool, edges: list[tuple[float, float]]
) -> None:
    column = BinnedColumn("x", 0, 2, file_bounds=bounds, log=log)
    for number, (low, high) in enumerate(edges):
        of_bin = column.edges(number)
        assert (of_bin.low, of_bin.high) == pytest.approx((low, high))
        assert of_bin.value is None


def test_the_table_of_exponentials_is_exact_enough() -> None:
    t = np.concatenate([np.linspace(0, 45, 20_001), [np.inf, np.nan, 1e300]])
    assert np.abs(decays(t)[:-3] - np.exp(-t[:-3])).max() < 4e-5
    assert not decays(t)[-3:].any()


def test_the_exported_network_gives_the_same_scores() -> None:
    of = model(3)
    kind, arguments = construction_of(of)
    network = kind(**arguments)
    network.load_state_dict(of.state(params(of)))
    assert torch.equal(network(rows()), of.logits(params(of), rows()))
