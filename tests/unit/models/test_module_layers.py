"""Modules whose code shows their layers: one backward pass, and the same gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.losses import bce_with_logits, cross_entropy, mse
from tacit.models.module import ModuleModel, module_model
from tacit.models.module_layers import seen_through
from tacit.models.vectors import example_gradients, vmap_gradients


class Images(nn.Module):
    """As people write it: functions between layers, a view, a sum of two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.last, self.features = nn.Linear(64, 3), nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        x = x + self.second(x)
        scores: Tensor = self.last(self.features(x.view(x.shape[0], -1)))
        return scores


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.embedding((x * 10).long()).mean(1))
        return scores


class Sequence(nn.Module):
    """A dense layer at every place of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, 4), nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(functional.gelu(self.inner(x)).mean(dim=1))
        return scores


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))


SEEN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (dense, (4,)),
    "images": (Images, (1, 8, 8)),
    "words": (Words, (6,)),
    "sequence": (Sequence, (7, 5)),
}


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("regularization", [0.0, 0.1])
def test_one_backward_pass_finds_the_gradients_of_the_definition(
    name: str, regularization: float
) -> None:
    factory, shape = SEEN[name]
    model = module_model(
        "n:n", factory, shape=shape, outputs=3, loss=cross_entropy, regularization=regularization
    )
    assert model.traced
    x, y = model.random_batch(9, torch.Generator().manual_seed(5))
    params = model.init(3)
    gradients, defined = example_gradients(model, params, x, y), vmap_gradients(model, params, x, y)
    assert torch.allclose(gradients, defined, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", [mse, bce_with_logits])
def test_losses_of_a_batch_are_those_of_its_examples(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    model = module_model(
        "n:n",
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)),
        shape=(4,),
        outputs=1,
        labels=0 if loss is mse else 2,
        loss=loss,
    )
    x, y = model.random_batch(9, torch.Generator().manual_seed(5))
    params = model.init(3)
    scores = model.logits(params, x)
    each = torch.stack([loss(score, label) for score, label in zip(scores, y, strict=True)])
    assert torch.allclose(model.data_loss(scores, y), each)
    assert model.traced
    gradients, defined = example_gradients(model, params, x, y), vmap_gradients(model, params, x, y)
    assert torch.allclose(gradients, defined, rtol=1e-4, atol=1e-6)


def test_what_is_not_trained_is_no_layer_of_the_vector() -> None:
    model = module_model("n:n", dense, shape=(4,), outputs=3, loss=cross_entropy, trainable=["3.*"])
    assert model.traced
    assert model.seen is not None
    assert model.seen.layers == ("3",)
    x, y = model.random_batch(5, torch.Generator().manual_seed(5))
    params = model.init(3)
    gradients, defined = example_gradients(model, params, x, y), vmap_gradients(model, params, x, y)
    assert torch.allclose(gradients, defined, rtol=1e-4, atol=1e-6)


class Code(nn.Module):
    """A dense layer, and a step that is given."""

    def __init__(self, step: Callable[[Tensor], Tensor], width: int = 4) -> None:
        super().__init__()
        self.step, self.first, self.last = step, nn.Linear(4, width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.step(self.first(x)))
        return scores


def _branch(x: Tensor) -> Tensor:
    return -x if bool(x.max() > 0.5) else x


def _hooked() -> nn.Module:
    network = dense()
    network[0].register_forward_hook(lambda _layer, _x, output: output * 2)  # type: ignore[index]
    return network


def _half_trained() -> nn.Module:
    network = dense()
    network[0].bias.requires_grad_(False)  # type: ignore[index]
    return network


UNSEEN: dict[str, Callable[[], nn.Module]] = {
    "the mean of a batch": lambda: Code(lambda x: x - x.mean(0)),
    "the mean of everything": lambda: Code(lambda x: x - x.mean()),
    "a batch as a row": lambda: Code(lambda x: x + x.view(-1)[:4]),
    "a batch turned over": lambda: Code(lambda x: x.flip(0)),
    "rows by rows": lambda: Code(lambda x: x @ x.T @ x),
    "more dimensions in a sum": lambda: Code(lambda x: (x + x.view(x.shape[0], 1, 4)).mean(1)),
    "the number of examples": lambda: Code(lambda x: x * x.shape[0]),
    "a branch on numbers": lambda: Code(_branch),
    "in place": lambda: Code(lambda x: x.relu_()),
    "a layer in place": lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True)),
    "a hook": _hooked,
    "a weight without its bias": _half_trained,
    "a layer of a user": lambda: nn.Sequential(type("Own", (nn.Linear,), {})(4, 3)),
    "a layer used twice": lambda: nn.Sequential(*[nn.Linear(4, 4)] * 2),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_code_that_shows_less_is_not_seen_through(name: str) -> None:
    assert seen_through(UNSEEN[name](), (4,)) is None
    assert seen_through(dense(), (4,)) is not None  # the control


def test_what_is_never_used_is_refused_as_before() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.idle(x)
            scores: Tensor = self.used(x)
            return scores

    with pytest.raises(ConfigError, match=r"idle\.weight gets no gradient"):
        module_model("n:n", Idle, shape=(4,), outputs=3, loss=cross_entropy)


def test_a_model_that_is_not_seen_through_is_no_less_a_model() -> None:
    model: ModuleModel = module_model(
        "n:n",
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)),
        shape=(4,),
        outputs=3,
        loss=cross_entropy,
    )
    x, y = model.random_batch(5, torch.Generator().manual_seed(5))
    params = model.init(3)
    assert not model.traced
    gradients = example_gradients(model, params, x, y)
    assert torch.equal(gradients, vmap_gradients(model, params, x, y))
