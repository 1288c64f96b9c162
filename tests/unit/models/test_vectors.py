"""Per-example gradients equal the loop over examples, and a softmax gradient worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.datasets import Dataset
from tacit.models import Model, build
from tacit.models.vectors import example_gradients, linear_factors, mean_gradient, vmap_gradients
from tacit.privacy.noise.grid import grid_step
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum import slots
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.private_sum.clipping import Clipped, clipped_sum, integer_sum, outer_sum
from tacit.privacy.release import Mechanism, Plan

MODELS = [
    build("logistic", (1, 8, 8), 10, regularization=1e-2),
    build("svm", (1, 8, 8), 10, regularization=1e-2),
    build("svm", (5,), 3),
    build("cnn", (1, 8, 8), 10, kernel=3, hidden=(7,)),
    build("cnn", (1, 16, 16), 10, kernel=3, regularization=1e-2),
    build("cnn", (3, 14, 14), 4, channels=(3, 5)),
    build("cnn", (1, 28, 28), 10, hidden=(50,), regularization=1e-4),
    build("cnn", (1, 12, 12), 4, channels=(3, 5), hidden=(6,), activation="tanh"),
    build(
        "cnn",
        (3, 8, 8),
        4,
        channels=(3, 4, 5, 6),
        kernel=3,
        hidden=(6,),
        pool_every=2,
        normalization="group",
    ),
    build("mlp", (2, 3, 3), 4, hidden=(7, 5), regularization=1e-3),
    build("resnet", (3, 8, 8), 4, width=4, blocks=2, regularization=1e-3),
    build("mobilenet", (3, 8, 8), 4, width=4, blocks=2),
    build("lstm", (6,), 11, embedding=5, hidden=(7,)),
    build("lstm", (5,), 9, embedding=4, hidden=(3, 4), regularization=1e-3),
]


def batch(
    model: Model, size: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return parameters near the initial ones, and `size` examples.

    The images have a flat background.
    """
    generator = torch.Generator().manual_seed(seed)
    params = model.init(seed) + 0.1 * torch.randn(model.size, generator=generator)
    x, y = model.random_batch(size, generator)
    return params, (x - 0.5).clamp_min(0) if x.is_floating_point() else x, y


def loop(model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute the readable reference: one backward pass for each example."""
    rows = []
    for row, label in zip(x, y, strict=True):
        leaf = params.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model.loss(leaf, row, label), leaf)
        rows.append(gradient)
    return torch.stack(rows)


@pytest.mark.parametrize("model", MODELS, ids=Model.schema)
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_gradients_equal_the_loop_over_examples_and_vmap(
    model: Model, chunk_size: int | None
) -> None:
    params, x, y = batch(model, 9)
    expected = loop(model, params, x, y)
    gradients = example_gradients(model, params, x, y, chunk_size=chunk_size)
    assert gradients.shape == (9, model.size)
    assert torch.allclose(gradients, expected, atol=1e-5)
    assert torch.allclose(vmap_gradients(model, params, x, y), expected, atol=1e-5)


@pytest.mark.parametrize("model", MODELS, ids=Model.schema)
def test_mean_gradient_is_the_mean_of_the_rows(model: Model) -> None:
    params, x, y = batch(model, 11, seed=3)
    expected = example_gradients(model, params, x, y).mean(0)
    assert torch.allclose(mean_gradient(model, params, x, y), expected, atol=1e-6)


def test_softmax_gradient_by_hand() -> None:
    """Compare d loss/d W[k] = r_k·x and d loss/d b[k] = r_k = p_k − 1[k = y].

    Here p = softmax(ln 1, ln 2, ln 5).
    """
    model = build("logistic", (2,), 3)
    params = torch.tensor([0.0, 0, 0, 0, 0, 0, math.log(1), math.log(2), math.log(5)])
    gradients = example_gradients(model, params, torch.tensor([[2.0, -4.0]]), torch.tensor([1]))
    residual = torch.tensor([1 / 8, 2 / 8 - 1, 5 / 8])
    expected = torch.cat([torch.outer(residual, torch.tensor([2.0, -4.0])).flatten(), residual])
    assert torch.allclose(gradients[0], expected, atol=1e-7)


def test_the_penalty_is_in_every_row() -> None:
    plain, penalised = build("logistic", (4,), 3), build("logistic", (4,), 3, regularization=0.5)
    params, x, y = batch(plain, 6)
    difference = example_gradients(penalised, params, x, y) - example_gradients(plain, params, x, y)
    assert torch.allclose(difference, (0.5 * params).expand(6, -1), atol=1e-6)


@pytest.mark.parametrize("model", MODELS[:4], ids=Model.schema)
def test_one_example_and_none(model: Model) -> None:
    params, x, y = batch(model, 1)
    assert torch.allclose(
        example_gradients(model, params, x, y), loop(model, params, x, y), atol=1e-5
    )
    assert example_gradients(model, params, x[:0], y[:0]).shape == (0, model.size)
    assert torch.equal(mean_gradient(model, params, x[:0], y[:0]), torch.zeros(model.size))


@pytest.mark.parametrize("model", [m for m in MODELS if m.name != "lstm"], ids=Model.schema)
def test_a_row_does_not_depend_on_the_other_rows(model: Model) -> None:
    """Check what sensitivity rests on: a gradient is a function of its own example alone."""
    params, x, y = batch(model, 8)
    together = example_gradients(model, params, x, y)
    x[1:] = float("nan")
    y[1:] = 0
    poisoned = example_gradients(model, params, x, y)
    assert torch.allclose(poisoned[0], together[0], atol=1e-6)
    assert poisoned[1:].isnan().any(dim=1).all()


def test_a_row_of_a_sequence_does_not_depend_on_the_other_sequences() -> None:
    model = build("lstm", (6,), 11, embedding=5, hidden=(7,))
    params, x, y = batch(model, 8)
    together = example_gradients(model, params, x, y)
    x[1:], y[1:] = 10 - x[1:], 3
    others = example_gradients(model, params, x, y)
    assert torch.allclose(others[0], together[0], atol=1e-6)
    assert not torch.isclose(others[1:], together[1:], atol=1e-6).all(dim=1).any()


def test_a_words_gradient_adds_up_over_its_places() -> None:
    """Put one word at every place: its row of the embedding has the sum.

    All other rows are exactly 0.
    """
    model = build("lstm", (6,), 11, embedding=5, hidden=(7,))
    params, _, y = batch(model, 2)
    x = torch.full((2, 6), 4)
    gradients = example_gradients(model, params, x, y)
    table = gradients[:, : 11 * 5].view(2, 11, 5)
    assert torch.equal(table.abs().sum(2) > 0, (torch.arange(11) == 4).expand(2, 11))
    assert torch.allclose(gradients, loop(model, params, x, y), atol=1e-5)


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


# -- a linear model's clipped sum without its rows -------------------------------------------------

LINEAR = [build("logistic", (3, 4, 4), 10), build("svm", (1, 8, 8), 10), build("logistic", (5,), 3)]
steady = settings(derandomize=True, deadline=None, max_examples=60)


def ghost(
    model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor, clip: float, **mask: Any
) -> Clipped:
    """Take the fast path as the edge does."""
    drawn = mask.get("mask", torch.ones(len(y), dtype=torch.bool))
    return outer_sum(*linear_factors(model, params, x, y), clip, drawn)


@steady
@given(
    st.sampled_from(LINEAR),
    st.integers(0, 40),
    st.integers(0, 10**6),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1e3),
)
def test_the_ghost_sum_equals_the_clipped_sum_of_the_rows(
    model: Model, size: int, seed: int, clip: float, scale: float
) -> None:
    params, x, y = batch(model, size, seed)
    mask = torch.rand(size, generator=torch.Generator().manual_seed(seed)) < 0.7
    expected = clipped_sum(example_gradients(model, params, x * scale, y), clip, mask)
    fast = ghost(model, params, x * scale, y, clip, mask=mask)
    assert fast.total.shape == expected.total.shape == (model.size,)
    assert fast.total.dtype == torch.float64
    assert torch.allclose(fast.total, expected.total, rtol=1e-5, atol=1e-5 * clip)
    assert fast.sensitivity == expected.sensitivity == clip


@steady
@given(
    st.floats(-1e3, 1e3, width=32),
    st.floats(1e-6, 1e6),
    st.integers(0, 10**6),
    st.sampled_from([1, 60, 4000]),
)
def test_a_ghost_row_is_never_longer_than_c(
    exponent: float, clip: float, seed: int, inputs: int
) -> None:
    """Check the norm of the one row, in float64, at every size that float32 can hold."""
    generator = torch.Generator().manual_seed(seed)
    sizes = 10.0 ** (exponent % 30 - 15), 10.0 ** (exponent % 23 - 12)
    delta, x = (
        sizes[0] * torch.randn(1, 7, generator=generator),
        sizes[1] * torch.randn(1, inputs, generator=generator),
    )
    total = outer_sum(delta, x, clip, torch.tensor([True])).total
    assert bool(torch.isfinite(total).all())
    assert float(torch.linalg.vector_norm(total.to(torch.float64))) <= clip


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["delta", "x"])
def test_a_non_finite_row_contributes_nothing(bad: float, where: str) -> None:
    delta, x, mask = torch.rand(4, 3), torch.rand(4, 5), torch.tensor([True, True, True, False])
    expected = outer_sum(delta[[0, 2]], x[[0, 2]], 0.5, mask[:2])
    (delta if where == "delta" else x)[1, 2] = bad
    assert torch.allclose(outer_sum(delta, x, 0.5, mask).total, expected.total, atol=1e-6)


def test_no_row_gives_a_zero_sum_and_a_clip_that_is_none_is_refused() -> None:
    delta, x, mask = torch.rand(2, 3), torch.rand(2, 5), torch.tensor([False, False])
    assert torch.equal(outer_sum(delta, x, 1.0, mask).total, torch.zeros(18))
    assert torch.equal(outer_sum(delta[:0], x[:0], 1.0, mask[:0]).total, torch.zeros(18))
    assert torch.equal(outer_sum(delta * 0, x, 1.0, ~mask).total, torch.zeros(18))
    for clip in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="clip="):
            outer_sum(delta, x, clip, mask)


# -- the edge's choice between them ----------------------------------------------------------------


def slots_of(model: Model, mechanism: Mechanism) -> slots.Slots:
    _, x, y = batch(model, 40)
    plan = Plan(mechanism, 0.5, 20.0, 1.0, 0.1, 1.0, 1.0, 1e-5)
    rows = Dataset(x, y, model.classes, "toy")
    private = private_sum(rows, model, plan, Random(1), rows_alone=False)
    assert isinstance(private, slots.Slots)
    return private


@pytest.mark.parametrize("model", MODELS, ids=Model.schema)
@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian", "knorm"])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_a_batch_in_parts_gives_the_sum_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, model: Model, mechanism: Mechanism, rows: int
) -> None:
    monkeypatch.setattr(slots, "HELD", rows * 4 * model.size + 3)
    params, x, y = batch(model, 40)
    index, mask = torch.arange(40).flip(0), torch.arange(40) % 3 > 0
    gradients = example_gradients(model, params, x[index], y[index])
    in_parts = slots_of(model, mechanism).clipped(params, 0.3, index, mask)
    if mechanism == "discrete_gaussian":
        expected = integer_sum(gradients, 0.3, mask, grid_step(0.3, 1.0))
        # A step or so of rounding per row.
        assert (in_parts.total - expected.total).abs().max() <= 40
    else:
        expected = clipped_sum(gradients, 0.3, mask)
        assert torch.allclose(in_parts.total, expected.total, atol=1e-5)
    assert (in_parts.sensitivity, in_parts.step, in_parts.total.dtype) == (
        0.3,
        expected.step,
        expected.total.dtype,
    )
