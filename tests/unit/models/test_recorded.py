"""What an own module's code does at one row changes no other row, and ends nothing.

It may raise, remember, or ask for something.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.datasets import Dataset
from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.models.losses import LOSSES, Loss, cross_entropy
from tacit.models.metrics import chosen
from tacit.models.module import ModuleModel, module_model
from tacit.models.recorded import Recorded, recorded
from tacit.models.vectors import example_gradients
from tests.helpers import own_modules
from tests.helpers.own_modules import BRANCHES, RAISES, WIDTH, Ponder, Solve, against

TARGET = 2  # the place of the row that raises


def model_of(
    kind: type[nn.Module], *, trusted: bool = False, loss: Loss = cross_entropy
) -> ModuleModel:
    return module_model(
        f"nets:{kind.__name__}",
        kind,
        shape=(WIDTH,),
        outputs=2 if loss in LOSSES.values() else 0,
        labels=2,
        loss=loss,
        trusted=trusted,
    )


def rows_and_attack(model: ModuleModel) -> tuple[Tensor, Tensor, Tensor]:
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


def check_others(model: ModuleModel) -> None:
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
    check_others(model_of(kind, trusted=True))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.usefixtures("signals_are_heard")
def test_ctrl_c_still_ends_a_command() -> None:
    model = model_of(own_modules.Interrupts, trusted=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        example_gradients(model, *rows_and_attack(model))


def test_a_module_that_raises_at_a_row_of_the_test_set_leaves_one_point_out() -> None:
    model = model_of(Solve)
    params, x, y = rows_and_attack(model)
    metrics = chosen((), Target("classes", ("no", "yes")), Path())
    with pytest.raises(ConfigError, match="on the test set"):  # which the aggregator logs
        metrics.measure(model, params, Dataset(x, y, 2, "test"))


@pytest.mark.parametrize("kind", [*BRANCHES, Ponder])
def test_code_that_follows_a_rows_numbers_is_refused_in_one_line(kind: type[nn.Module]) -> None:
    with pytest.raises(ConfigError, match=r'steps for every row.*control_flow="trusted"') as caught:
        model_of(kind)
    assert "\n" not in str(caught.value)


class Numbers(Solve):
    """Takes a number out of torch, for numpy."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x, self.b(x) * float(x.detach().numpy().max()))


class Clamps(Solve):
    """Writes to its own weights."""

    def forward(self, x: Tensor) -> Tensor:
        self.b.weight.data.clamp_(-1, 1)
        return self.scores(x, self.b(x))


class Draws(Solve):
    """Draws at random, too little to be noticed by comparing outputs."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x, self.b(x) + 1e-9 * torch.rand(3))


class Counts(Solve):
    """Counts in a buffer."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return self.scores(x, self.b(x))


class Masked(Solve):
    """Takes as many numbers as there are above one half."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x, self.b(x) + x[x > 0.5].sum())


class Compares(Solve):
    """Compares a row with itself, which is true but for nan."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x, self.b(x)) if torch.equal(x, x * 1.0) else self.a(x)


class Filled(Solve):
    """Writes where a mask says."""

    def forward(self, x: Tensor) -> Tensor:
        inside = self.b(x)
        inside[inside < 0] = 0.0
        return self.scores(x, inside)


@pytest.mark.parametrize("kind", [Numbers, Clamps, Draws, Counts, Masked, Compares, Filled])
def test_code_whose_operations_cannot_be_recorded_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(ConfigError, match=r"model\.entry=nets:"):
        model_of(kind)


class Calls(Solve):
    """Says and counts whenever its code is run."""

    runs = 0

    def forward(self, x: Tensor) -> Tensor:
        Calls.runs += 1
        print("a row")  # noqa: T201
        warnings.warn("a row", stacklevel=1)
        return self.scores(x, torch.cumsum(self.b(x), 1))


@pytest.mark.filterwarnings("ignore:a row")
def test_no_code_of_the_module_runs_on_private_rows(capfd: pytest.CaptureFixture[str]) -> None:
    model = model_of(Calls)
    params, x, y = rows_and_attack(model)
    runs = Calls.runs
    capfd.readouterr()
    example_gradients(model, params, x, y)
    assert Calls.runs == runs
    assert capfd.readouterr().out == ""


def own_loss(output: Tensor, y: Tensor) -> Tensor:
    """Invert the outer product of the scores: a loss that may fail for any row."""
    diagonal = torch.diag_embed(output.sum() * torch.ones(2))
    loss: Tensor = torch.linalg.inv(diagonal).sum() + output[0] * y
    return loss


class Plain(nn.Module):
    """Known layers only."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(WIDTH, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.a(x).relu())
        return scores


def test_a_loss_of_ones_own_may_raise_too() -> None:
    model = model_of(Plain, loss=own_loss)
    assert not model.traced
    params, x, y = model.init(5), *model.random_batch(6, torch.Generator().manual_seed(3))
    parts = model.unflatten(params)
    for name in ("head.weight", "head.bias"):
        parts[name].fill_(0.0)
    gradients = example_gradients(model, params, x, y)  # every row's matrix is 0
    assert gradients.isnan().all()
    parts["head.bias"].fill_(0.5)
    assert example_gradients(model, params, x, y).isfinite().all()


class Words(nn.Module):
    """Known layers only, of which one looks words up; how many there are, the server says."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.words = nn.Linear(WIDTH, WIDTH), nn.Embedding(10, 6)
        self.head, self.other = nn.Linear(6, 2), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.a(x)
        scores: Tensor = self.head(self.words(inside.abs().long()).mean(1)) + self.other(inside)
        return scores


class TiedWords(Words):
    """The same where its layers are not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


@pytest.mark.parametrize("kind", [Words, TiedWords])
def test_a_word_that_is_not_there_is_nan_and_no_other_row_changes(kind: type[Words]) -> None:
    model = model_of(kind)
    assert model.traced == (kind is Words)
    params = model.init(5)
    x, y = model.random_batch(6, torch.Generator().manual_seed(3))
    parts = model.unflatten(params)
    parts["a.weight"].zero_()
    parts["a.weight"][:, 0] = 1000 / float(
        x[TARGET, 0]
    )  # the first number decides, and the target's
    x[:, 0] = torch.where(torch.arange(6) == TARGET, x[:, 0], 1e-4)  # is by far the largest
    gradients = example_gradients(model, params, x, y)
    others = torch.arange(6) != TARGET
    assert gradients[TARGET].isnan().any()
    replaced = torch.where(others[:, None], x, 1e-4)
    assert torch.equal(gradients[others], example_gradients(model, params, replaced, y)[others])
    assert gradients[others].isfinite().all()


def test_a_division_of_whole_numbers_is_no_known_step() -> None:
    assert model_of(own_modules.Halves).seen is None


class Attention(nn.Module):
    """What cannot raise is computed for all rows at once."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        words = x.unsqueeze(1) * torch.eye(WIDTH)
        attended, _ = self.attention(words, words, words, need_weights=False)
        scores: Tensor = self.head(functional.gelu(attended).mean(1))
        return scores


@pytest.mark.parametrize(("kind", "batched"), [(Attention, True), (Solve, False), (Calls, True)])
@pytest.mark.filterwarnings("ignore:a row")
def test_only_what_cannot_raise_is_computed_for_all_rows_at_once(
    kind: type[nn.Module], batched: bool
) -> None:
    model = model_of(kind)
    recording = recorded(model, "cpu", torch.float32, torch.int64)
    assert isinstance(recording, Recorded)
    assert (recording.mapped is not None) == batched
    x, y = model.random_batch(5, torch.Generator().manual_seed(4))
    x[1], x[2], x[3] = torch.nan, torch.inf, 0.0
    params = model.init(2)
    together = example_gradients(model, params, x, y)
    for row, label, gradient in zip(x, y, together, strict=True):
        alone = recording.graph(params, row, label)
        torch.testing.assert_close(gradient, alone, rtol=1e-4, atol=1e-6, equal_nan=True)


class Negative(Solve):
    """Fails on every public row already."""

    def forward(self, x: Tensor) -> Tensor:
        root = torch.linalg.cholesky(torch.diag_embed(self.a(x) * 0 - 1))
        return self.scores(x, (root @ self.b(x).unsqueeze(2)).squeeze(2))


def test_code_that_fails_on_public_rows_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match="cholesky") as caught:
        model_of(Negative)
    assert "\n" not in str(caught.value)
