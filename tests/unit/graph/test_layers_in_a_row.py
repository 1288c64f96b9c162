"""A graph of layers in a row is computed by the compiled loops, whatever code it came from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.models.graph.graph_model import GraphModel
from tacit.models.graph.layers_in_a_row import layers_in_a_row
from tacit.models.losses import Loss, bce_with_logits, cross_entropy
from tacit.models.module import module_model
from tacit.models.vectors import example_gradients
from tacit.models.zoo.layered import Layered

PICTURE, WIDE = (1, 12, 12), (3, 8, 8)


class Written(nn.Module):
    """The same as layers, in functions, and with what a graph does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3)
        self.dropout = nn.Dropout(0.5).eval()
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            x = functional.max_pool2d(layer(x), 2).relu()
        return torch.as_tensor(self.out(self.dropout(x.flatten(1))))


def written() -> nn.Module:
    return nn.Sequential(nn.ZeroPad2d(0), Written())


def net(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*layers)


def row(*middle: nn.Module, inputs: int = 144) -> Callable[[], nn.Module]:
    return net(nn.Flatten(), nn.Linear(inputs, 8), *middle, nn.Linear(8, 3))


SAME: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (net(nn.Linear(5, 3)), (5,)),
    "dense": (row(nn.Tanh()), PICTURE),
    "functions": (Written, PICTURE),
    "every second": (
        net(
            *(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1), nn.Tanh()),
            *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3)),
        ),
        WIDE,
    ),
}
OTHER: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "another activation": (row(nn.GELU()), PICTURE),
    "two activations": (row(nn.ReLU(), nn.Linear(8, 8), nn.Tanh()), PICTURE),
    "none between": (row(), PICTURE),
    "no bias": (net(nn.Linear(5, 8, bias=False), nn.ReLU(), nn.Linear(8, 3)), (5,)),
    "flat at the end": (net(nn.Linear(4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)), (4, 4)),
    "strides": (
        net(nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(50, 3)),
        PICTURE,
    ),
    "mean pool": (
        net(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(50, 3)),
        PICTURE,
    ),
}


def model_of(
    factory: Callable[[], nn.Module],
    shape: tuple[int, ...],
    loss: Loss = cross_entropy,
    trainable: tuple[str, ...] = ("*",),
) -> GraphModel:
    outputs = 3 if loss is cross_entropy else 1
    labels = 3 if loss is cross_entropy else 2
    model = module_model(
        *("n:n", factory),
        shape=shape,
        outputs=outputs,
        labels=labels,
        loss=loss,
        trainable=trainable,
        regularization=0.01,
    )
    assert isinstance(model, GraphModel)
    return model


@pytest.mark.parametrize("name", SAME)
def test_layers_in_a_row_have_the_same_gradients_as_the_graph(name: str) -> None:
    model = model_of(*SAME[name])
    network = layers_in_a_row(model)
    assert isinstance(network, Layered)
    assert network.size == model.size
    x, y = model.random_batch(6, torch.Generator().manual_seed(3))
    params, own = model.init(2), example_gradients(model, model.init(2), 2 * x - 1, y)
    loops = example_gradients(network, params, 2 * x - 1, y)
    torch.testing.assert_close(loops, own, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", OTHER)
def test_what_is_something_else_is_not_taken_for_them(name: str) -> None:
    assert layers_in_a_row(model_of(*OTHER[name])) is None


def test_another_loss_or_a_frozen_layer_is_something_else() -> None:
    single = net(nn.Linear(5, 1))
    assert layers_in_a_row(model_of(single, (5,), bce_with_logits)) is None
    assert layers_in_a_row(model_of(row(nn.ReLU()), PICTURE, trainable=("3.*",))) is None
