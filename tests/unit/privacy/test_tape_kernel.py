"""Gradients along a tape: the plain ones, and the same bits in any company and at any address."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.datasets.edge_rows import EdgeRows
from tacit.kernels.loading import library
from tacit.models import Model, build
from tacit.models.graph.graph_model import GraphModel
from tacit.models.losses import Loss, cross_entropy, mse
from tacit.models.module import module_model
from tacit.models.vectors import example_gradients
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.private_sum.clipping import integer_sum
from tacit.privacy.private_sum.row_sums import Drawn, RowSums, SumTerms
from tacit.privacy.private_sum.tape_sums import TapeKernel, tape_kernel
from tacit.privacy.release import Plan
from tests.helpers.forty_modules import CASES
from tests.helpers.nightly import nightly
from tests.unit.graph.test_freezing import built

pytestmark = pytest.mark.skipif(
    library() is None and not os.environ.get("CI"), reason="numba is not installed"
)
ROWS = 9
PICTURE = (3, 8, 8)


class Residual(nn.Module):
    """A convolution whose input is added to its output, by a convolution of one place or not."""

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.norm, self.inside = nn.GroupNorm(2, inputs), nn.Conv2d(inputs, width, 3, stride, 1)
        self.beside: nn.Module = nn.Identity()
        if stride > 1 or inputs != width:
            self.beside = nn.Conv2d(inputs, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return a picture."""
        return torch.as_tensor(self.beside(x) + self.inside(self.norm(x).relu()))


def residual() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=1), Residual(6, 6), Residual(6, 10, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(10, 5)),
    )


def separable() -> nn.Module:
    """Return convolutions of every form, without a mean at the end."""
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, 2, bias=False), nn.Tanh()),
        *(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.GroupNorm(1, 4, affine=False), nn.GELU()),
        *(nn.Conv2d(4, 9, 1), nn.ReLU(), nn.Conv2d(9, 9, 2, groups=9), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(36, 5)),
    )


def gated() -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(13, 21), nn.LayerNorm(21), nn.GELU(), nn.Linear(21, 9, bias=False)),
        *(nn.LayerNorm(9, bias=False), nn.Tanh(), nn.Linear(9, 5)),
    )


OWN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (residual, PICTURE),
    "separable": (separable, PICTURE),
    "gated": (gated, (13,)),
    "picture as numbers": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 7), nn.GELU(), nn.Linear(7, 5)),
        PICTURE,
    ),
}
ZOO: dict[str, Callable[[], Model]] = {
    "resnet": lambda: build("resnet", (3, 16, 16), 10, width=8),
    "odd resnet": lambda: build("resnet", (1, 9, 9), 7, width=5, blocks=2, regularization=0.01),
    "mobilenet": lambda: build("mobilenet", (3, 16, 16), 10, width=16),
    "odd mobilenet": lambda: build("mobilenet", (1, 7, 7), 3, width=3, blocks=2),
    "one place": lambda: build("resnet", (1, 4, 4), 3, width=2),
    "fewer places": lambda: build("resnet", (2, 6, 6), 3, width=8),
    "lstm": lambda: build("lstm", (9,), 31, embedding=6, hidden=(5,)),
    "deep lstm": lambda: build("lstm", (5,), 40, embedding=32, hidden=(17, 8)),
    "one word": lambda: build("lstm", (1,), 12, embedding=8, hidden=(8,)),
}


def own_model(factory: Callable[[], nn.Module], shape: tuple[int, ...], loss: Loss) -> GraphModel:
    outputs = 5 if loss is cross_entropy else 1
    labels = 5 if loss is cross_entropy else 0
    model = module_model("n:n", factory, shape=shape, outputs=outputs, labels=labels, loss=loss)
    assert isinstance(model, GraphModel)
    return model


@cache
def model_of(name: str) -> Model:
    if name in ZOO:
        return ZOO[name]()
    torch.manual_seed(3)
    return own_model(*OWN[name], cross_entropy)


@pytest.fixture(params=[*ZOO, *OWN])
def model(request: pytest.FixtureRequest) -> Model:
    return model_of(request.param)


def kernel_of(model: Model) -> TapeKernel:
    kernel = tape_kernel(model)
    assert kernel is not None
    return kernel


def params_of(model: Model, scale: float = 0.1) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return model.init(1) + torch.randn(model.size, generator=generator) * scale


def batch_of(model: Model, count: int = ROWS) -> tuple[Tensor, Tensor]:
    x, y = model.random_batch(count, torch.Generator().manual_seed(5))
    return (2 * x - 1 if x.is_floating_point() else x), y


def restored(kernel: TapeKernel, rows: Tensor) -> Tensor:
    return torch.stack([kernel.restore(row.numpy()) for row in rows])


def close(gradients: Tensor, expected: Tensor) -> bool:
    return bool(((gradients - expected).norm(dim=1) <= 1e-5 * expected.norm(dim=1)).all())


def test_they_are_the_gradients_of_each_examples_loss(model: Model) -> None:
    kernel, params = kernel_of(model), params_of(model)
    x, y = batch_of(model)

    gradients = restored(kernel, kernel.rows(params, x, y))

    assert close(gradients, example_gradients(model, params, x, y))


WITH_TAPE = {"linear", "mlp", "gelu", "layer norm", "dropout in eval", "residual"}


@pytest.mark.parametrize("name", [*sorted(WITH_TAPE), *nightly(*sorted({*CASES} - {*WITH_TAPE}))])
def test_of_forty_modules_those_with_a_tape_have_their_own_gradients(name: str) -> None:
    _, model, _ = built(name)
    kernel = tape_kernel(model)
    assert (kernel is not None) == (name in WITH_TAPE)
    if kernel is not None:
        x, y = batch_of(model)
        params = model.init(0)
        gradients = restored(kernel, kernel.rows(params, x, y))
        assert close(gradients, example_gradients(model, params, x, y))


def test_a_row_has_the_same_bits_in_any_company(model: Model) -> None:
    kernel, params = kernel_of(model), params_of(model, 10.0)
    x, y = batch_of(model)
    alone = torch.cat([kernel.rows(params, x[i : i + 1], y[i : i + 1]) for i in range(ROWS)])
    strange = x.clone()
    if x.is_floating_point():
        some = torch.tensor([float("nan"), 1e38, float("inf"), 1e-44, 0.0])
        strange[::2] = some.view(5, *[1] * (x.dim() - 1))
    else:
        strange[::2] = 0

    assert torch.equal(kernel.rows(params, x, y), alone)
    assert torch.equal(kernel.rows(params, x.flip(0), y.flip(0)).flip(0), alone)
    assert torch.equal(kernel.rows(params, strange, y)[1::2], alone[1::2])


def test_a_row_has_the_same_bits_at_any_address(model: Model) -> None:
    kernel, params = kernel_of(model), params_of(model)
    x, y = batch_of(model)
    expected = kernel.rows(params, x, y)
    for off in (1, 3, 5, 7):
        arranged = moved(kernel.arrange(params), off)
        out = moved(np.full((ROWS, kernel.size), np.nan, np.float32), 8 - off)
        kernel.gradients(
            arranged, moved(x.flatten(1).numpy(), off), y.numpy(), np.arange(ROWS), out
        )
        assert torch.equal(torch.from_numpy(out.copy()), expected)


def moved(numbers: np.ndarray, off: int) -> np.ndarray:
    """Return a copy that begins `off` numbers behind a multiple of 64 bytes."""
    room = np.empty(numbers.size + 64, numbers.dtype)
    first = -(room.ctypes.data // numbers.itemsize) % 16 + off
    copy = room[first : first + numbers.size].reshape(numbers.shape)
    copy[...] = numbers
    return copy


def test_nothing_of_a_row_before_is_read(model: Model) -> None:
    kernel, params = kernel_of(model), params_of(model)
    x, y = batch_of(model)
    expected = kernel.rows(params, x, y)
    kernel._memory[:] = np.nan
    kernel._totals[:] = np.nan
    assert torch.equal(kernel.rows(params, x, y), expected)


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["resnet", "mobilenet", *OWN])
def test_a_row_that_is_no_number_is_seen_to_be_none(name: str, strange: float) -> None:
    model = model_of(name)
    kernel, params = kernel_of(model), params_of(model)
    x, y = batch_of(model)
    x[1].view(-1)[3] = strange
    gradients = kernel.rows(params, x, y)
    if not torch.isfinite(example_gradients(model, params, x, y)[1]).all():
        assert not torch.isfinite(gradients[1]).all()
    assert torch.isfinite(gradients[[0, *range(2, ROWS)]]).all()


def test_the_order_of_its_own_leads_back(model: Model) -> None:
    kernel, params = kernel_of(model), params_of(model)
    arranged = kernel.arrange(params)
    assert torch.equal(kernel.restore(arranged[: kernel.size]), params)
    assert kernel.size >= model.size


def test_what_fills_up_has_no_gradient(model: Model) -> None:
    kernel = kernel_of(model)
    x, y = batch_of(model)
    rows = kernel.rows(params_of(model), x, y)
    filled = torch.ones(kernel.size, dtype=torch.bool)
    filled[kernel._back.long()] = False
    assert not rows[:, filled].any()


@pytest.mark.parametrize("name", ["mobilenet", "lstm", "residual"])
def test_their_sum_is_that_of_the_clipped_gradients(name: str) -> None:
    model = model_of(name)
    sums, params = RowSums.checked(model), model.init(1)
    x, y = batch_of(model)
    index = np.array([7, 2, 2, 0])
    total = sums.sum(params, Drawn(x, y, index), SumTerms(0.5, 2.0**-12, ROWS)).total
    gradients = example_gradients(model, params, x[index], y[index])
    expected = integer_sum(gradients, 0.5, torch.ones(4, dtype=torch.bool), 2.0**-12).total
    assert int((total - expected).abs().max()) <= 4


@pytest.mark.parametrize("name", ["resnet", "lstm", "residual"])
def test_an_edge_computes_drawn_rows_alone(name: str) -> None:
    model = model_of(name)
    x, y = batch_of(model, 30)
    plan = Plan("discrete_gaussian", 0.2, 6, 1.0, 1.0, 1.0, 1e6, 1e-5, rows_max=30)
    rows = private_sum(EdgeRows(x, y), model, plan, Random(1))
    assert rows.way == "drawn rows alone"


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Loss]] = {
    "another loss": (lambda: nn.Sequential(nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 1)), (5,), mse),
    "a pool": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 4, 3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
        ),
        PICTURE,
        cross_entropy,
    ),
    "lines": (lambda: nn.Sequential(nn.Conv2d(3, 5, (8, 6)), Mean()), PICTURE, cross_entropy),
}


class Mean(nn.Module):
    """The mean of each channel."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, channels)."""
        return x.mean((2, 3))


@pytest.mark.parametrize("name", REFUSED)
def test_other_graphs_have_no_tape(name: str) -> None:
    assert tape_kernel(own_model(*REFUSED[name])) is None


def test_a_large_graph_has_no_tape() -> None:
    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(1_000, 2_200), nn.GELU(), nn.Linear(2_200, 5))

    assert tape_kernel(own_model(wide, (1_000,), cross_entropy)) is None


def test_a_weight_that_is_read_twice_has_no_tape() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 5)

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.layer(self.layer(x).relu()))

    assert tape_kernel(own_model(Twice, (5,), cross_entropy)) is None
