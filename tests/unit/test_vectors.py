"""Per-example gradients equal the loop over examples, and a softmax gradient worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tacit.models import Model, build
from tacit.vectors import example_gradients, mean_gradient, vmap_gradients

MODELS = [
    build("logistic", (1, 8, 8), 10, regularization=1e-2),
    build("svm", (1, 8, 8), 10, regularization=1e-2),
    build("svm", (5,), 3),
    build("cnn", (1, 8, 8), 10, kernel=3, hidden=(7,)),
    build("cnn", (1, 16, 16), 10, kernel=3, regularization=1e-2),
    build("cnn", (3, 14, 14), 4, channels=(3, 5)),
    build("cnn", (1, 28, 28), 10, hidden=(50,), regularization=1e-4),
    build("cnn", (1, 12, 12), 4, channels=(3, 5), hidden=(6,), activation="tanh"),
]


def batch(model: Model, size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Parameters near, not at, the initial ones, and `size` examples: images with a flat background."""
    generator = torch.Generator().manual_seed(seed)
    params = model.init(seed) + 0.1 * torch.randn(model.size, generator=generator)
    x = (torch.rand(size, *model.shape, generator=generator) - 0.5).clamp_min(0)
    return params, x, torch.randint(model.classes, (size,), generator=generator)


def loop(model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The readable reference: one backward pass for each example."""
    rows = []
    for one, label in zip(x, y, strict=True):
        leaf = params.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model.loss(leaf, one, label), leaf)
        rows.append(gradient)
    return torch.stack(rows)


@pytest.mark.parametrize("model", MODELS, ids=Model.schema)
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_gradients_equal_the_loop_over_examples_and_vmap(model: Model, chunk_size: int | None) -> None:
    params, x, y = batch(model, 9)
    expected = loop(model, params, x, y)
    found = example_gradients(model, params, x, y, chunk_size=chunk_size)
    assert found.shape == (9, model.size)
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(vmap_gradients(model, params, x, y), expected, atol=1e-5)


@pytest.mark.parametrize("model", MODELS, ids=Model.schema)
def test_mean_gradient_is_the_mean_of_the_rows(model: Model) -> None:
    params, x, y = batch(model, 11, seed=3)
    expected = example_gradients(model, params, x, y).mean(0)
    assert torch.allclose(mean_gradient(model, params, x, y), expected, atol=1e-6)


def test_softmax_gradient_by_hand() -> None:
    """d loss/d W[k] = r_k·x and d loss/d b[k] = r_k = p_k − 1[k = y], with p = softmax(ln 1, ln 2, ln 5)."""
    model = build("logistic", (2,), 3)
    params = torch.tensor([0.0, 0, 0, 0, 0, 0, math.log(1), math.log(2), math.log(5)])
    found = example_gradients(model, params, torch.tensor([[2.0, -4.0]]), torch.tensor([1]))
    residual = torch.tensor([1 / 8, 2 / 8 - 1, 5 / 8])
    expected = torch.cat([torch.outer(residual, torch.tensor([2.0, -4.0])).flatten(), residual])
    assert torch.allclose(found[0], expected, atol=1e-7)


def test_the_penalty_is_in_every_row() -> None:
    plain, penalised = build("logistic", (4,), 3), build("logistic", (4,), 3, regularization=0.5)
    params, x, y = batch(plain, 6)
    difference = example_gradients(penalised, params, x, y) - example_gradients(plain, params, x, y)
    assert torch.allclose(difference, (0.5 * params).expand(6, -1), atol=1e-6)


@pytest.mark.parametrize("model", MODELS[:4], ids=Model.schema)
def test_one_example_and_none(model: Model) -> None:
    params, x, y = batch(model, 1)
    assert torch.allclose(example_gradients(model, params, x, y), loop(model, params, x, y), atol=1e-5)
    assert example_gradients(model, params, x[:0], y[:0]).shape == (0, model.size)
    assert torch.equal(mean_gradient(model, params, x[:0], y[:0]), torch.zeros(model.size))


def test_a_row_does_not_depend_on_the_other_rows() -> None:
    """What sensitivity rests on: an example's gradient is a function of that example alone."""
    model = MODELS[3]
    params, x, y = batch(model, 8)
    whole = example_gradients(model, params, x, y)
    x[1:] = float("nan")
    y[1:] = 0
    poisoned = example_gradients(model, params, x, y)
    assert torch.allclose(poisoned[0], whole[0], atol=1e-6)
    assert poisoned[1:].isnan().any(dim=1).all()


def test_results_are_detached_repeatable_and_leave_the_inputs_alone() -> None:
    model = MODELS[3]
    params, x, y = batch(model, 5)
    before: list[Any] = [params.clone(), x.clone(), y.clone()]
    first, again = example_gradients(model, params, x, y), example_gradients(model, params, x, y)
    assert torch.equal(first, again)
    assert not first.requires_grad
    assert not mean_gradient(model, params, x, y).requires_grad
    assert not params.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(before, (params, x, y), strict=True))
