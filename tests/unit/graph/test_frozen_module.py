"""Own modules become graphs where they are built: what cannot is refused, and no code of theirs runs
on private rows.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.models.graph.frozen_module import FrozenModule
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model
from tacit.models.trusted_module import TrustedModule
from tacit.models.vectors import example_gradients
from tests.helpers.kept_state import Own, check_nothing_is_kept, far
from tests.helpers.own_modules import BRANCHES, RAISES, WIDTH, Ponder, Solve


def model_of(kind: type[nn.Module]) -> FrozenModule:
    model = module_model(
        f"nets:{kind.__name__}", kind, shape=(WIDTH,), outputs=2, loss=cross_entropy
    )
    assert isinstance(model, FrozenModule)
    return model


@pytest.mark.parametrize("kind", [*BRANCHES, Ponder])
def test_code_that_follows_a_rows_numbers_is_refused_in_one_line(kind: type[nn.Module]) -> None:
    with pytest.raises(ConfigError, match=r'asks for a number.*control_flow="trusted"') as caught:
        model_of(kind)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", RAISES)
def test_an_operation_that_may_raise_is_refused_with_its_line(kind: type[nn.Module]) -> None:
    with pytest.raises(ConfigError, match=r'own_modules\.py:\d+.*control_flow="trusted"') as caught:
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
def test_code_that_is_no_function_of_one_row_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(ConfigError, match=r"model\.entry=nets:"):
        model_of(kind)


class SetBuffer(Own):
    """Takes a buffer's memory for a tensor of its own, and writes to that."""

    def forward(self, x: Tensor) -> Tensor:
        alias = torch.empty(0)
        alias.set_(self.state)  # type: ignore[call-overload]
        alias.add_(far(x))
        return self.scores(x)


class SetParameter(Own):
    """The same with a parameter."""

    def forward(self, x: Tensor) -> Tensor:
        alias = torch.empty(0)
        alias.set_(self.scale.detach())  # type: ignore[call-overload]
        alias.add_(far(x))
        return self.scores(x)


class Named(Own):
    """The same by the operation's full name."""

    def forward(self, x: Tensor) -> Tensor:
        alias = torch.zeros(WIDTH)
        torch.ops.aten.set_.source_Tensor(alias, self.state)
        alias.copy_(self.state + far(x))
        return self.scores(x)


class Resized(Own):
    """Gives a tensor another size, which may leave it numbers of what was there."""

    def forward(self, x: Tensor) -> Tensor:
        resized = torch.zeros(2 * WIDTH)
        torch.ops.aten.resize_(resized, [WIDTH])
        return self.scores(x + resized)


class Listed(Own):
    """Writes to a list of tensors."""

    def forward(self, x: Tensor) -> Tensor:
        torch._foreach_add_([self.state], [far(x)])
        return self.scores(x)


@pytest.mark.parametrize("kind", [SetBuffer, SetParameter, Named, Resized, Listed])
def test_a_write_that_may_reach_what_is_given_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(ConfigError, match=r"model\.entry=nets:"):
        model_of(kind)


class InPlace(Own):
    """Writes to tensors of its own alone, and has a constant."""

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.zeros_like(x)
        mixed[:, 0] = x[:, 1]
        mixed[:, [1, 2]] = 2 * x[:, :2]
        mixed.add_(x).mul_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        return self.scores(torch.relu_(mixed.unsqueeze(1).squeeze_(1) - 0.1))


def test_what_writes_to_its_own_tensors_alone_keeps_nothing() -> None:
    model = model_of(InPlace)
    before = {name: value.clone() for name, value in model.values.items()}
    check_nothing_is_kept(model)
    assert all(torch.equal(before[name], value) for name, value in model.values.items())


class Listing(Own):
    """Branches on a number that `tolist` gives."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x if x.tolist()[0][0] < 1 else -x)


class Hidden(Own):
    """Branches on a number of a tensor that was a constant."""

    def forward(self, x: Tensor) -> Tensor:
        largest = torch.tensor([0.0])
        largest[0] = x.detach().max()
        return self.scores(x if largest.item() < 1 else -x)


class Asserting(Own):
    """Raises for a number of a tensor that was a constant."""

    def forward(self, x: Tensor) -> Tensor:
        largest = torch.tensor([0.0])
        largest[0] = x.detach().max()
        if largest.item() > 1:
            raise ValueError
        return self.scores(x)


@pytest.mark.parametrize("kind", [Listing, Hidden, Asserting])
def test_a_branch_on_numbers_that_torch_does_not_see_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(
        ConfigError, match=r"asks for a number of a row|takes other steps for other numbers"
    ):
        model_of(kind)


class Rare(nn.Module):
    """Branches on the largest whole number, which no random row has."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 2)
        self.head = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        largest = torch.tensor([0])
        largest[0] = x.max()
        states = self.words(x).mean(1)
        scores: Tensor = self.head(-states if largest.item() == 999 else states)
        return scores


def test_a_branch_on_the_largest_whole_number_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"asks for a number of a row|takes other steps for other numbers"
    ):
        module_model("rare", Rare, shape=(5,), outputs=2, loss=cross_entropy, integers=1000)


class Unsteady(Own):
    """Overflows on public rows that are far away, and divides by zero at zeros."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(torch.exp(x * x) + 1 / x.sum(1, keepdim=True))


def test_a_module_whose_gradients_overflow_is_taken() -> None:
    model = model_of(Unsteady)
    x = torch.tensor([[0.5] * WIDTH, [100.0] * WIDTH, [0.0] * WIDTH])
    gradients = example_gradients(model, model.init(3), x, torch.tensor([0, 1, 1]))
    assert gradients.isfinite().all(1).tolist() == [True, False, False]


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
    params = model.init(5)
    x, y = model.random_batch(6, torch.Generator().manual_seed(3))
    runs = Calls.runs
    capfd.readouterr()
    example_gradients(model, params, x, y)
    assert Calls.runs == runs
    assert capfd.readouterr().out == ""


class Words(nn.Module):
    """Looks words up: where, the server says."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.words = nn.Linear(WIDTH, WIDTH), nn.Embedding(10, 6)
        self.head, self.other = nn.Linear(6, 2), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.a(x)
        scores: Tensor = self.head(self.words(inside.abs().long()).mean(1)) + self.other(inside)
        return scores


class TiedWords(Words):
    """The same with a weight that is read in no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


TARGET = 2  # the place of the row with another word


@pytest.mark.parametrize("kind", [Words, TiedWords])
def test_a_word_that_is_not_there_is_nan_and_no_other_row_changes(kind: type[Words]) -> None:
    model = model_of(kind)
    assert (model.one_pass is not None) == (kind is Words)
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


class _Turned(torch.autograd.Function):
    """Gives its input, and turns the gradient's sign."""

    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def backward(_: object, *outputs: Tensor) -> Tensor:
        return -outputs[0]


class Turns(Solve):
    """States a gradient of its own, which a graph does not have."""

    def forward(self, x: Tensor) -> Tensor:
        turned: Tensor = _Turned.apply(self.b(x))  # type: ignore[no-untyped-call]
        return self.scores(x, turned)


class Hooked(Solve):
    """The same by a hook."""

    def forward(self, x: Tensor) -> Tensor:
        inside = self.b(x)
        if inside.requires_grad:
            inside.register_hook(torch.neg)
        return self.scores(x, inside)


@pytest.mark.parametrize("kind", [Turns, Hooked])
def test_a_gradient_of_ones_own_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(ConfigError, match="states another gradient than its operations have"):
        model_of(kind)


def test_one_that_is_trusted_has_the_gradient_that_it_states() -> None:
    own = {"shape": (WIDTH,), "outputs": 2, "loss": cross_entropy}
    model = module_model("nets:Net", Turns, trusted=True, **own)  # type: ignore[arg-type]
    assert isinstance(model, TrustedModule)
