"""What an own module's trusted code does at one row changes no other row, and ends nothing.

It may raise, remember, or write where it can.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tacit.datasets import Dataset
from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.models.losses import LOSSES, Loss, cross_entropy
from tacit.models.metrics import chosen
from tacit.models.module import module_model
from tacit.models.trusted_module import TrustedModule
from tacit.models.vectors import example_gradients
from tests.helpers import own_modules
from tests.helpers.kept_state import Own, check_nothing_is_kept, far
from tests.helpers.own_modules import BRANCHES, RAISES, WIDTH, Solve, against

TARGET = 2  # the place of the row that raises


def model_of(kind: type[nn.Module], loss: Loss = cross_entropy) -> TrustedModule:
    model = module_model(
        f"nets:{kind.__name__}",
        kind,
        shape=(WIDTH,),
        outputs=2 if loss in LOSSES.values() else 0,
        labels=2,
        loss=loss,
        trainable=["a.*", "b.*", "head.*", "scale"],
        trusted=True,
    )
    assert isinstance(model, TrustedModule)
    return model


def rows_and_attack(model: TrustedModule) -> tuple[Tensor, Tensor, Tensor]:
    """Return parameters of a hostile server, and rows of which one raises."""
    x, y = model.random_batch(6, torch.Generator().manual_seed(3))
    params = model.init(5)
    against(model.unflatten(params), x[TARGET])
    return params, x, y


@pytest.fixture
def signals_are_heard() -> Iterator[None]:
    """Handle SIGINT as an edge does, so that a KeyboardInterrupt is the code's own."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


def check_others(model: TrustedModule) -> None:
    """Check that one row is nan throughout and that the others have the same bits without it."""
    params, x, y = rows_and_attack(model)
    gradients = example_gradients(model, params, x, y)
    others = torch.arange(len(y)) != TARGET
    replaced = x.clone()
    replaced[TARGET] = 0.25
    without = example_gradients(model, params, replaced, y)
    assert gradients[TARGET].isnan().all()
    assert without.isfinite().all()
    assert torch.equal(gradients[others], without[others])


@pytest.mark.parametrize("kind", RAISES)
def test_a_row_that_an_operation_raises_at_is_nan_and_no_other_changes(kind: type[Solve]) -> None:
    model = model_of(kind)
    params, x, _ = rows_and_attack(model)
    with pytest.raises((RuntimeError, IndexError)):
        model.logits(params, x[TARGET])  # so it would end the edge
    check_others(model)


@pytest.mark.usefixtures("signals_are_heard")
@pytest.mark.parametrize("kind", BRANCHES)
def test_a_row_that_trusted_code_raises_at_is_nan_and_no_other_changes(
    kind: type[Solve], capfd: pytest.CaptureFixture[str]
) -> None:
    check_others(model_of(kind))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.usefixtures("signals_are_heard")
def test_ctrl_c_still_ends_a_command() -> None:
    model = model_of(own_modules.Interrupts)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        example_gradients(model, *rows_and_attack(model))


def test_a_module_that_raises_at_a_row_of_the_test_set_leaves_one_point_out() -> None:
    model = model_of(Solve)
    params, x, y = rows_and_attack(model)
    metrics = chosen((), Target("classes", ("no", "yes")), Path())
    with pytest.raises(ConfigError, match="on the test set"):  # which the aggregator logs
        metrics.measure(model, params, Dataset(x, y, 2, "test"))


class Negative(Solve):
    """Fails on every public row already."""

    def forward(self, x: Tensor) -> Tensor:
        root = torch.linalg.cholesky(torch.diag_embed(self.a(x) * 0 - 1))
        return self.scores(x, (root @ self.b(x).unsqueeze(2)).squeeze(2))


def test_code_that_fails_on_public_rows_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match="cholesky") as caught:
        model_of(Negative)
    assert "\n" not in str(caught.value)


def own_loss(output: Tensor, y: Tensor) -> Tensor:
    """Invert the outer product of the scores: a loss that may fail for any row."""
    diagonal = torch.diag_embed(output.sum() * torch.ones(2))
    loss: Tensor = torch.linalg.inv(diagonal).sum() + output[0] * y
    return loss


class Plain(nn.Module):
    """Layers that a graph may have."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(WIDTH, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.a(x).relu())
        return scores


def test_a_loss_of_ones_own_may_raise_too() -> None:
    model = model_of(Plain, own_loss)
    params, x, y = model.init(5), *model.random_batch(6, torch.Generator().manual_seed(3))
    parts = model.unflatten(params)
    for name in ("head.weight", "head.bias"):
        parts[name].fill_(0.0)
    gradients = example_gradients(model, params, x, y)  # every row's matrix is 0
    assert gradients.isnan().all()
    parts["head.bias"].fill_(0.5)
    assert example_gradients(model, params, x, y).isfinite().all()


class Branches(Own):
    """Branches on numbers, and writes where it can."""

    def forward(self, x: Tensor) -> Tensor:
        if float(x.sum()) > 1e9:
            x = x * 2
        self.write(x)
        return self.scores(x)

    def write(self, x: Tensor) -> None:
        """Write something of the row."""
        self.state.data.add_(far(x))


class BranchesParameter(Branches):
    """Writes to its parameters."""

    def write(self, x: Tensor) -> None:
        self.scale.data.add_(far(x))


class BranchesKept(Branches):
    """Writes to numbers that it has by another name, and reads those."""

    def write(self, x: Tensor) -> None:
        for tensor in self.also:
            tensor.data.add_(far(x))

    def scores(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        return super().scores(x + self.also[0].detach() + self.also[1].detach())


class BranchesRow(Branches):
    """Writes to its row."""

    def write(self, x: Tensor) -> None:
        x.data.add_(1.0)


@pytest.mark.parametrize("kind", [Branches, BranchesParameter, BranchesKept, BranchesRow])
def test_a_row_of_trusted_code_leaves_nothing_for_the_next(kind: type[nn.Module]) -> None:
    check_nothing_is_kept(model_of(kind))
