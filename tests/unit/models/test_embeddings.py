"""Embeddings and heads as functions of flat vectors: (9), (10) and (11b)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from tacit.errors import ConfigError
from tacit.models import Model
from tacit.models.zoo.embedding_networks import (
    Embedding,
    EmbeddingKind,
    Recurrent,
    embedding,
    head,
    neuron,
)

KINDS: list[tuple[EmbeddingKind, tuple[int, ...], dict[str, Any]]] = [
    ("linear", (1, 4, 28), {}),
    ("linear", (9,), {}),
    ("mlp", (9,), {"hidden": (7, 5), "activation": "tanh"}),
    ("cnn", (1, 14, 14), {"channels": (4, 6), "hidden": (8,), "activation": "tanh"}),
    ("lstm", (9,), {"hidden": (5, 6)}),
    ("lstm", (3, 4, 8), {"hidden": (5,)}),
]


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def initial(
    kind: EmbeddingKind, shape: tuple[int, ...], arguments: dict[str, Any]
) -> tuple[Embedding, Tensor, Tensor]:
    h = embedding(kind, shape, 6, **arguments)
    return h, h.init(3), torch.rand(10, *shape, generator=generator())


@pytest.mark.parametrize(("kind", "shape", "arguments"), KINDS)
def test_an_embedding_maps_every_record_by_itself(
    kind: EmbeddingKind, shape: Any, arguments: Any
) -> None:
    h, theta, x = initial(kind, shape, arguments)
    together = h.embed(theta, x)
    assert together.shape == (10, 6)
    assert len(theta) == h.size == sum(math.prod(shape) for _, shape in h.layout)
    assert torch.allclose(
        together, torch.cat([h.embed(theta, record[None]) for record in x]), atol=1e-6
    )
    assert torch.allclose(
        together, h.logits(theta, x), atol=1e-6
    )  # as a model, the embedding is its scores
    assert float(together.std()) > 0.01


@pytest.mark.parametrize(("kind", "shape", "arguments"), KINDS)
def test_every_parameter_matters_and_per_example_gradients_exist(
    kind: EmbeddingKind, shape: Any, arguments: Any
) -> None:
    h, theta, x = initial(kind, shape, arguments)
    each = vmap(grad(lambda t, record: h.embed(t, record[None]).square().sum()), (None, 0))(
        theta, x
    )
    assert each.shape == (10, h.size)
    assert float((each.abs().sum(0) > 0).float().mean()) > 0.9


def test_eq_9_a_linear_embedding_is_x_theta() -> None:
    h = embedding("linear", (9,), 4)
    theta, x = h.init(1), torch.rand(3, 9, generator=generator())
    assert torch.allclose(h.embed(theta, x), x @ theta[:36].view(4, 9).T + theta[36:], atol=1e-6)


def test_eq_9_composes_layer_by_layer() -> None:
    h = embedding("mlp", (3,), 2, hidden=(4,), activation="tanh")
    theta, x = h.init(1), torch.rand(5, 3, generator=generator())
    parts = h.unflatten(theta)
    inner = torch.tanh(x @ parts["dense1.weight"].T + parts["dense1.bias"])
    assert torch.allclose(
        h.embed(theta, x), inner @ parts["dense2.weight"].T + parts["dense2.bias"], atol=1e-6
    )


def test_the_lstm_is_pytorchs() -> None:
    h = embedding("lstm", (7,), 3, hidden=(5, 4))
    assert isinstance(h, Recurrent)
    theta, x = h.init(2), torch.rand(6, 7, generator=generator())
    parts, states = h.unflatten(theta), x[..., None]
    for number, (inputs, cells) in enumerate(((1, 5), (5, 4)), 1):
        layer = nn.LSTM(inputs, cells, batch_first=True)
        weights = (parts[f"lstm{number}.{part}"] for part in ("weight", "recurrent", "bias"))
        with torch.no_grad():
            for parameter, ours in zip(
                layer.parameters(), (*weights, torch.zeros(4 * cells)), strict=True
            ):
                parameter.copy_(ours)
            states, _ = layer(states)
    expected = states[:, -1] @ parts["dense1.weight"].T + parts["dense1.bias"]
    assert torch.allclose(h.embed(theta, x), expected, atol=1e-5)


def test_an_image_is_a_sequence_of_its_rows() -> None:
    h = embedding("lstm", (3, 4, 8), 2, hidden=(5,))
    assert h.shape == (4, 24)
    theta, x = h.init(1), torch.rand(2, 3, 4, 8, generator=generator())
    rows = torch.stack([x[:, :, row].flatten(1) for row in range(4)], 1)
    assert torch.allclose(h.embed(theta, x), h.embed(theta, rows), atol=1e-6)


# -- (10) and (11b) --------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "right"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_eq_11b_the_neurons_are_uniform_of_standard_deviation_c(scale: float, right: bool) -> None:
    z = neuron(0.2 * scale, generator())(torch.zeros(200, 100))
    assert (abs(float(z.std()) / 0.2 - 1) < 0.02) == right
    assert (abs(float(z.abs().max()) / (math.sqrt(3) * 0.2) - 1) < 0.01) == right
    if right:
        assert (
            abs(float((z > math.sqrt(3) * 0.1).float().mean()) - 0.25) < 0.02
        )  # flat, not Gaussian


@pytest.mark.parametrize(("kind", "shape", "arguments"), KINDS)
def test_eq_10_every_layer_but_the_last_is_perturbed_and_only_on_request(
    kind: Any, shape: Any, arguments: Any
) -> None:
    h, theta, x = initial(kind, shape, {**arguments, "smoothing": 0.3})
    plain = h.embed(theta, x)
    assert torch.equal(plain, h.embed(theta, x))
    assert torch.equal(h.embed(theta, x, generator(1)), h.embed(theta, x, generator(1)))
    smooth = h.embed(theta, x, generator(1))
    if kind == "linear":  # L = 1: its only layer is the last, which (11a) perturbs
        assert torch.equal(smooth, plain)
    else:
        assert not bool((smooth == plain).any())
        assert not torch.equal(smooth, h.embed(theta, x, generator(2)))


def test_theorem_5_perturbation_makes_a_kink_smooth() -> None:
    h = embedding("mlp", (1,), 1, hidden=(1,), smoothing=1.0)
    theta = torch.tensor([1.0, 0.0, 1.0, 0.0])  # relu(x)
    slopes = []
    for at in (-0.3, 0.0, 0.3):
        x = torch.full((200_000, 1), at, requires_grad=True)
        (slope,) = torch.autograd.grad(h.embed(theta, x, generator()).sum(), x)
        slopes.append(float(slope.mean()))
    reach = math.sqrt(3)
    expected = [
        (at + reach) / (2 * reach) for at in (-0.3, 0.0, 0.3)
    ]  # P(x + Z > 0): no jump from 0 to 1
    assert slopes == pytest.approx(expected, abs=0.01)


# -- heads -----------------------------------------------------------------------------------------


def test_the_sum_head_adds_embeddings_and_a_bias() -> None:
    top = head("sum", 3, 4, 4)
    h, bias = torch.rand(5, 3, 4, generator=generator()), torch.arange(4.0)
    assert torch.allclose(top.logits(bias, h), h.sum(1) + bias)
    assert torch.equal(top.init(1), torch.zeros(4))


def test_the_concat_head_is_dense_layers_on_all_embeddings() -> None:
    top: Model = head("concat", 3, 4, 2, (6,))
    params, h = top.init(1), torch.rand(5, 3, 4, generator=generator())
    parts = top.unflatten(params)
    inner = torch.relu(h.flatten(1) @ parts["dense1.weight"].T + parts["dense1.bias"])
    assert torch.allclose(
        top.logits(params, h), inner @ parts["dense2.weight"].T + parts["dense2.bias"], atol=1e-6
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("linear", (9,), 0), "algorithm.width = 0"),
        (("mlp", (9,), 3), "algorithm.hidden = ()"),
        (("lstm", (9,), 3), "algorithm.hidden = ()"),
        (("cnn", (1, 4, 28), 3), "square images"),
    ],
)
def test_an_impossible_embedding_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace(")", r"\)")):
        embedding(*arguments)


@pytest.mark.parametrize("smoothing", [-1.0, math.inf, math.nan])
def test_an_impossible_smoothing_is_refused(smoothing: float) -> None:
    with pytest.raises(ConfigError, match="smoothing"):
        embedding("linear", (9,), 3, smoothing=smoothing)


def test_a_sum_needs_as_many_numbers_as_classes() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.width = 3 must be the 10 classes"):
        head("sum", 2, 3, 10)


def test_a_schema_tells_what_is_interchangeable() -> None:
    same = embedding("mlp", (9,), 3, hidden=(4,)).schema()
    assert same == embedding("mlp", (9,), 3, hidden=(4,)).schema()
    assert same != embedding("mlp", (9,), 3, hidden=(5,)).schema()
    assert head("sum", 2, 3, 3).schema() != head("concat", 2, 3, 3).schema()
