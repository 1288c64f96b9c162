"""Gradients of rows that are computed alone: the plain ones, and the same bits in any company."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.kernels.loading import library
from tacit.models import Layered, build
from tacit.models.vectors import example_gradients
from tacit.privacy.private_sum.row_sums import RowKernel, row_kernel

pytestmark = pytest.mark.skipif(
    library() is None and not os.environ.get("CI"), reason="numba is not installed"
)
IMAGE = (1, 12, 12)
MODELS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "logistic": ("logistic", IMAGE, {}),
    "logistic, penalty": ("logistic", (5,), {"regularization": 0.1}),
    "svm": ("svm", IMAGE, {"regularization": 1e-2}),
    "mlp": ("mlp", IMAGE, {"hidden": (9, 7)}),
    "mlp, tanh": ("mlp", IMAGE, {"hidden": (33,), "activation": "tanh"}),
    "paper": ("cnn", IMAGE, {"channels": (4, 6), "kernel": 3}),
    "testbed": ("cnn", (1, 28, 28), {"channels": (10, 20), "hidden": (50,)}),
    "colour": ("cnn", (3, 12, 12), {"channels": (5, 3), "kernel": 3, "hidden": (8,)}),
    "tanh": ("cnn", IMAGE, {"channels": (3, 5), "kernel": 3, "activation": "tanh"}),
    "group": ("cnn", IMAGE, {"channels": (6, 7), "kernel": 3, "normalization": "group"}),
    "padded": ("cnn", (3, 8, 8), {"channels": (4, 4, 6, 6), "kernel": 3, "pool_every": 2}),
    "padded, group": (
        "cnn",
        (3, 8, 8),
        {"channels": (4, 6), "kernel": 3, "pool_every": 2, "normalization": "group"},
    ),
    "large window": ("cnn", (2, 28, 28), {"channels": (3, 7), "kernel": 9}),
    "one output": ("cnn", IMAGE, {"channels": (1, 2), "kernel": 3}),
    "not pooled": ("cnn", (1, 9, 9), {"channels": (11, 6), "kernel": 3, "pool_every": 3}),
    "odd": ("cnn", (1, 11, 11), {"channels": (5,), "kernel": 4, "regularization": 0.01}),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Layered:
    name, shape, options = MODELS[request.param]
    layered = build(name, shape, 10, **options)
    assert isinstance(layered, Layered)
    return layered


def kernel_of(model: Layered) -> RowKernel:
    kernel = row_kernel(model)
    assert isinstance(kernel, RowKernel)
    return kernel


def params_of(model: Layered, scale: float = 0.1) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return model.init(1) + torch.randn(model.size, generator=generator) * scale


def restored(kernel: RowKernel, rows: Tensor) -> Tensor:
    return torch.stack([kernel.restore(row.numpy()) for row in rows])


def test_they_are_the_gradients_of_each_examples_loss(model: Layered) -> None:
    kernel, params = kernel_of(model), params_of(model)
    x, y = model.random_batch(23, torch.Generator().manual_seed(5))

    gradients = restored(kernel, kernel.rows(params, x, y))

    expected = example_gradients(model, params, x, y)
    assert torch.allclose(gradients, expected, rtol=1e-5, atol=2e-6 * float(expected.abs().max()))


def test_at_zero_all_classes_are_alike(model: Layered) -> None:
    """Try the first model of a convex run: it has ties everywhere."""
    kernel, params = kernel_of(model), torch.zeros(model.size)
    x, y = model.random_batch(5, torch.Generator().manual_seed(5))

    gradients = restored(kernel, kernel.rows(params, x, y))

    assert torch.allclose(gradients, example_gradients(model, params, x, y), rtol=1e-5, atol=1e-6)


def test_a_row_has_the_same_bits_in_any_company(model: Layered) -> None:
    kernel, params = kernel_of(model), params_of(model, 100.0)
    x, y = model.random_batch(9, torch.Generator().manual_seed(5))
    alone = torch.cat([kernel.rows(params, x[i : i + 1], y[i : i + 1]) for i in range(9)])
    strange = x.clone()
    strange[::2] = torch.tensor([float("nan"), 1e38, float("inf"), 1e-44, 0.0]).view(5, 1, 1, 1)[
        (...,) + (0,) * (4 - x.dim())
    ]

    assert torch.equal(kernel.rows(params, x, y), alone)
    assert torch.equal(kernel.rows(params, x.flip(0), y.flip(0)).flip(0), alone)
    assert torch.equal(kernel.rows(params, strange, y)[1::2], alone[1::2])


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), 3e38])
def test_a_row_that_is_no_number_is_seen_to_be_none(model: Layered, strange: float) -> None:
    kernel, params = kernel_of(model), params_of(model)
    x, y = model.random_batch(3, torch.Generator().manual_seed(5))
    x[1].view(-1)[3] = strange

    gradients = restored(kernel, kernel.rows(params, x, y))[1]

    expected = example_gradients(model, params, x, y)[1]
    # Moments are in float64 here, so that a large number's square is one, too.
    huge_is_seen = model.normalization == "none" or strange != 3e38
    if huge_is_seen and not torch.isfinite(expected).all():
        assert not torch.isfinite(gradients).all() or float(gradients.norm()) > 2**60


def test_the_order_of_its_own_leads_back(model: Layered) -> None:
    kernel, params = kernel_of(model), params_of(model)

    assert torch.equal(kernel.restore(kernel.arrange(params)), params)
    assert kernel.size >= model.size


def test_rows_are_taken_by_their_numbers() -> None:
    model = build("cnn", IMAGE, 10, kernel=3)
    kernel, params = kernel_of(model), params_of(model)  # type: ignore[arg-type]
    x, y = model.random_batch(9, torch.Generator().manual_seed(5))
    index = torch.tensor([7, 2, 2])
    out = torch.zeros(3, kernel.size)

    arguments = kernel.arrange(params), x.flatten(1).numpy(), y.numpy(), index.numpy()
    kernel.gradients(*arguments, out.numpy())

    assert torch.equal(out, kernel.rows(params, x, y)[index])


def test_other_models_have_no_kernel() -> None:
    class Mine(Layered):
        """Whose layers may compute anything."""

    assert row_kernel(Mine("logistic", IMAGE, 10)) is None
