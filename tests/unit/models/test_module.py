"""Own modules: their per-example gradients are a loop's, and non-private parts are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tacit.datasets import Dataset
from tacit.errors import ConfigError
from tacit.models import best_constant, build
from tacit.models.graph.frozen_module import FrozenModule
from tacit.models.losses import bce_with_logits, cross_entropy, mse
from tacit.models.module import module_model
from tacit.models.vectors import example_gradients
from tacit.privacy.private_sum.probe import require_separate_examples


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        attended, _ = self.attention(x, x, x, need_weights=False)
        scores: Tensor = self.head(self.norm(x + attended).mean(1))
        return scores


class Cells(nn.Module):
    """A recurrent network of cells, one step at a time."""

    def __init__(self, cell: Callable[[int, int], nn.RNNCellBase]) -> None:
        super().__init__()
        self.cell, self.head = cell(5, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        last = state[0] if isinstance(state, tuple) else state
        scores: Tensor = self.head(last)
        return scores


class WholeLstm(nn.Module):
    """torch's own LSTM, which cannot be mapped: computed an example at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.lstm(x)[0][:, -1])
        return scores


class Tied(nn.Module):
    """Two layers share one weight, and a third parameter is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.second(torch.relu(self.first(x)) * self.scale) * self.scale
        if inner.shape[-1] == 4:  # an `if` on shapes
            inner = inner.tanh()
        scores: Tensor = self.head(inner)
        return scores


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.embedding((x * 10).long()).mean(1))
        return scores


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "convolution and group norm": (convolutions, (1, 8, 8)),
    "attention and layer norm": (Attention, (5, 8)),
    "lstm cell": (lambda: Cells(nn.LSTMCell), (4, 5)),
    "gru cell": (lambda: Cells(nn.GRUCell), (4, 5)),
    "lstm": (WholeLstm, (4, 5)),
    "tied": (Tied, (4,)),
    "embedding": (Words, (6,)),
}


@pytest.mark.parametrize("name", NETS)
def test_gradients_are_those_of_one_example_at_a_time(name: str) -> None:
    factory, shape = NETS[name]
    model = module_model(
        f"nets:{name}", factory, shape=shape, outputs=3, loss=cross_entropy, regularization=0.01
    )
    x, y = model.random_batch(7, torch.Generator().manual_seed(5))
    params = model.init(3)
    gradients = example_gradients(model, params, x, y, chunk_size=3)
    for row, label, gradient in zip(x, y, gradients, strict=True):
        leaf = params.clone().requires_grad_()
        loss = cross_entropy(model.logits(leaf, row), label) + 0.005 * leaf.dot(leaf)
        (alone,) = torch.autograd.grad(loss, leaf)
        torch.testing.assert_close(gradient, alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["linear", "convolution and group norm", "tied", "lstm cell"])
def test_an_examples_gradient_is_the_same_in_any_company(name: str) -> None:
    factory, shape = NETS[name]
    require_separate_examples(
        module_model(f"nets:{name}", factory, shape=shape, outputs=3, loss=cross_entropy)
    )


def test_the_vector_is_the_parameters_in_order_and_starts_from_the_seed() -> None:
    model = module_model("nets:Tied", Tied, shape=(4,), outputs=3, loss=cross_entropy)
    # A tied weight is in the vector once.
    assert [name for name, _ in model.layout] == [
        "scale",
        "first.weight",
        "first.bias",
        "second.bias",
        "head.weight",
        "head.bias",
    ]
    assert torch.equal(model.init(1), model.init(1))
    assert not torch.equal(model.init(1), model.init(2))
    before = torch.random.get_rng_state()
    model.init(3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_frozen_parts_stay_and_a_public_start_is_taken() -> None:
    start = {"0.weight": torch.full((6, 4), 0.5)}

    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

    model = module_model(
        "nets:net", net, shape=(4,), outputs=2, loss=cross_entropy, trainable=["2.*"], start=start
    )
    assert [name for name, _ in model.layout] == ["2.weight", "2.bias"]
    assert isinstance(model, FrozenModule)
    assert torch.equal(model.frozen["0.weight"], start["0.weight"])
    with pytest.raises(
        ConfigError, match=r"model\.weights: 0\.weight is \[3\], the module has \[6, 4\]"
    ):
        module_model(
            "nets:net",
            net,
            shape=(4,),
            outputs=2,
            loss=cross_entropy,
            start={"0.weight": torch.ones(3)},
        )


@pytest.mark.parametrize(
    ("loss", "y", "by_hand"),
    [
        (mse, 0.25, lambda s: (s - 0.25) ** 2),
        (bce_with_logits, 1.0, lambda s: torch.log1p(torch.exp(-s))),
    ],
)
def test_losses_of_one_number(
    loss: Callable[..., Tensor], y: float, by_hand: Callable[[Tensor], Tensor]
) -> None:
    score = torch.tensor([0.7])
    assert float(loss(score, torch.tensor(y))) == pytest.approx(float(by_hand(score[0])))


class Across(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(x - x.mean(0))
        return scores


class Lost(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.first(x).detach())
        return scores


class Raises(nn.Linear):
    """Raises `error`, whatever it is given."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(4, 3)
        self.error = error

    def forward(self, input: Tensor) -> Tensor:
        raise self.error


class Pair(nn.Linear):
    def forward(self, input: Tensor) -> tuple[Tensor, int]:  # type: ignore[override]
        return super().forward(input), 1


class Noisy(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + torch.rand(())


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
            "layer 1 is BatchNorm1d; use GroupNorm",
        ),
        (
            lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)),
            "layer 0 is Dropout; use no dropout",
        ),
        (lambda: nn.LazyLinear(3), "is LazyLinear; use the layer with its sizes given"),
        (lambda: nn.Flatten(), "no parameter to train"),
        (lambda: nn.Linear(4, 2), r"gives \[4, 2\] for 4 examples; expected \[4, 3\]"),
        (lambda: nn.Linear(5, 3), r"does not take a batch of shape \[4, 4\]"),
        (lambda: Raises(AttributeError("no fc")), r"does not take a batch of .*: no fc"),
        (lambda: Raises(AssertionError()), r"does not take a batch of .*: AssertionError"),
        (lambda: Raises(SystemExit(0)), r"does not take a batch of .*: 0"),
        (lambda: Pair(4, 3), "gives a tuple, not a tensor"),
        (Across, "depends on the other examples of its batch"),
        (lambda: Noisy(4, 3), "or on chance"),
        (Lost, r"parameter first\.weight gets no gradient"),
    ],
)
def test_what_cannot_be_private_is_refused_before_a_row_is_seen(
    factory: Callable[[], nn.Module], message: str
) -> None:
    module_model(
        "nets:Net", lambda: nn.Linear(4, 3), shape=(4,), outputs=3, loss=cross_entropy
    )  # a control
    with pytest.raises(ConfigError, match=message) as refused:
        module_model("nets:Net", factory, shape=(4,), outputs=3, loss=cross_entropy)
    assert str(refused.value).startswith("model.entry=nets:Net: ")
    assert "\n" not in str(refused.value)


def test_a_dropout_that_drops_nothing_is_allowed() -> None:
    built = module_model(
        "nets:Net",
        lambda: nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3)),
        shape=(4,),
        outputs=3,
        loss=cross_entropy,
    )
    assert isinstance(built, FrozenModule)


def test_the_best_constant_is_the_majority_or_the_mean() -> None:
    data = Dataset(torch.zeros(100, 4), torch.tensor([0] * 60 + [1] * 40), 2, "test")
    model = build("logistic", (4,), 2)
    constant = best_constant(model, data)
    assert constant is not None
    assert (constant.accuracy, constant.loss) == (0.6, None)
    assert constant.error == pytest.approx(2 * (0.6 * 0.4 / 100) ** 0.5)
    assert not constant.beaten(0.69, None)
    assert constant.beaten(0.70, None)
    numbers = Dataset(torch.zeros(4, 4), torch.tensor([0.0, 0.0, 1.0, 1.0]), 0, "test")
    net = module_model("n:n", lambda: nn.Linear(4, 1), shape=(4,), outputs=1, labels=0, loss=mse)
    squares = best_constant(net, numbers)
    assert squares is not None
    assert (squares.loss, squares.error) == (0.25, 0.0)
    assert squares.beaten(None, 0.2)
    assert not squares.beaten(None, 0.25)
    assert best_constant(model, numbers) is None  # another loss


class Functional(nn.Module):
    """What looks across examples, without a layer that says so."""

    def __init__(self, step: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.step, self.head = step, nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.step(self, x))
        return scores


def _kept_in_a_buffer(module: nn.Module, x: Tensor) -> Tensor:
    mean = module.get_buffer("mean")
    mean.lerp_(x.mean(0), 0.1)
    return x - mean


@pytest.mark.parametrize(
    "step", [lambda _, x: nn.functional.batch_norm(x, None, None, training=True), _kept_in_a_buffer]
)
def test_what_fails_on_one_example_is_one_line(step: Callable[[nn.Module, Tensor], Tensor]) -> None:
    with pytest.raises(ConfigError, match=r"model\.entry=nets:n: [^\n]*example") as refused:
        module_model("nets:n", lambda: Functional(step), shape=(4,), outputs=3, loss=cross_entropy)
    assert "\n" not in str(refused.value)


class Squeezing(nn.Module):
    """A module that loses its batch where that has one row."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(x).squeeze())


@pytest.mark.parametrize(("outputs", "loss"), [(1, bce_with_logits), (3, cross_entropy)])
def test_a_batch_of_one_row_is_a_batch_of_a_module_that_squeezes_too(
    outputs: int, loss: Callable[[Tensor, Tensor], Tensor]
) -> None:
    labels = 2 if outputs == 1 else 3
    model = module_model(
        "n:n", lambda: Squeezing(outputs), shape=(4,), outputs=outputs, labels=labels, loss=loss
    )
    params, x = model.init(1), torch.rand(5, 4)
    together = model.logits(params, x)
    for row in range(5):
        alone = model.logits(params, x[row : row + 1])
        assert alone.shape == together[row : row + 1].shape
        assert torch.allclose(alone, together[row : row + 1])
        assert model.probabilities(alone).shape == (1, labels)


class Buffered(Tied):
    """As Tied, with numbers that are not trained."""

    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.offset


def test_an_export_of_tied_weights_and_buffers_is_a_start() -> None:
    how = {"shape": (4,), "outputs": 3, "loss": cross_entropy}
    model = module_model("n:n", Buffered, **how)  # type: ignore[arg-type]
    params = model.init(7) + 0.5
    state = {**model.state(params), "offset": torch.tensor([1.0, 2.0, 3.0])}
    assert {"first.weight", "second.weight", "offset"} <= state.keys()
    again = module_model("n:n", Buffered, **how, start=state)  # type: ignore[arg-type]
    assert torch.equal(again.init(1), params)
    x = torch.rand(5, 4)
    moved = again.logits(params, x) - model.logits(params, x)
    assert torch.allclose(moved, state["offset"].expand(5, 3), atol=1e-5)
    state["second.weight"] = state["second.weight"] + 1
    with pytest.raises(ConfigError, match="is one parameter with another of the file"):
        module_model("n:n", Buffered, **how, start=state)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"other is \[2\], the module has no such parameter"):
        module_model("n:n", Buffered, **how, start={"other": torch.ones(2)})  # type: ignore[arg-type]


class LowRank(nn.Module):
    """A low-rank addition to a frozen layer; its second factor begins at zero, as usual."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 6).requires_grad_(requires_grad=False)
        self.a = nn.Parameter(torch.randn(2, 4))
        self.b = nn.Parameter(torch.zeros(6, 2))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(torch.tanh(self.base(x) + x @ self.a.T @ self.b.T)))


def test_a_low_rank_addition_that_begins_at_zero_is_taken() -> None:
    model = module_model("n:n", LowRank, shape=(4,), outputs=3, loss=cross_entropy)
    assert [name for name, _ in model.layout] == ["a", "b", "head.weight", "head.bias"]
