"""Models by hand: sizes, scores, losses, initial values, and the refusals of `build`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from tacit.datasets import Dataset, load
from tacit.errors import ConfigError
from tacit.models import Layered, Model, build, evaluate
from tacit.models.vectors import example_gradients, vmap_gradients

IMAGE = (1, 28, 28)


@pytest.mark.parametrize(
    ("name", "options", "size", "first"),
    [
        ("logistic", {}, 7850, 7850),
        ("svm", {}, 7850, 7850),
        ("cnn", {}, 8490, 260),
        ("cnn", {"hidden": (50,)}, 21_840, 260),
        ("cnn", {"channels": (4,), "kernel": 3, "hidden": (8, 6)}, 40 + 676 * 8 + 8 + 54 + 70, 40),
    ],
)
def test_parameter_counts(name: str, options: dict[str, Any], size: int, first: int) -> None:
    model = build(name, IMAGE, 10, **options)
    assert (model.size, model.first_layer) == (size, slice(0, first))
    assert model.init(0).shape == (size,)
    assert model.init(0).dtype == torch.float32


@pytest.mark.parametrize(
    ("side", "kernel", "padding", "size"),
    [
        (28, 5, 0, 8490),
        (16, 3, 0, 2730),
        (16, 5, 2, 8490),
        (8, 3, 1, 2730),
        (8, 5, 2, 6090),
        (4, 3, 1, 2130),
    ],
)
def test_small_images_are_padded_only_when_they_must_be(
    side: int, kernel: int, padding: int, size: int
) -> None:
    model = build("cnn", (1, side, side), 10, kernel=kernel)
    assert isinstance(model, Layered)
    assert (model.padding, model.size) == (padding, size)
    assert model.logits(model.init(0), torch.zeros(2, 1, side, side)).shape == (2, 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "vgg"}, r"model\.name = 'vgg'.*logistic, svm, mlp, cnn, resnet, mobilenet, lstm"),
        ({"shape": (1, 3, 3)}, r"model\.kernel = 5 does not fit 2 convolutions on 3x3"),
        ({"shape": (1, 8, 8), "kernel": 4}, r"model\.kernel = 4"),
        ({"kernel": 0}, r"model\.kernel = 0"),
        ({"shape": (64,)}, r"model\.name = 'cnn' needs square images"),
        ({"shape": (1, 28, 20)}, r"square images \(depth, side, side\), not \(1, 28, 20\)"),
        ({"channels": ()}, r"model\.channels = \(\)"),
        ({"channels": (0, 3)}, r"model\.channels = \(0, 3\)"),
        ({"hidden": (-1,)}, r"model\.hidden = \(-1,\)"),
        ({"classes": 1}, "classes = 1"),
        ({"regularization": -1.0}, r"regularization = -1\.0"),
    ],
)
def test_build_names_the_field_and_the_value(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"name": "cnn", "shape": IMAGE, "classes": 10} | change
    with pytest.raises(ConfigError, match=message):
        build(**arguments)


def test_cnn_is_the_same_function_as_torch_modules() -> None:
    torch.manual_seed(0)
    reference = torch.nn.Sequential(
        torch.nn.Conv2d(1, 10, 5),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(10, 20, 5),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(320, 50),
        torch.nn.ReLU(),
        torch.nn.Linear(50, 10),
    )
    params = torch.cat([part.detach().flatten() for part in reference.parameters()])
    x = torch.rand(3, *IMAGE)
    model = build("cnn", IMAGE, 10, hidden=(50,))
    assert torch.allclose(model.logits(params, x), reference(x), atol=1e-6)
    assert torch.allclose(model.logits(params, x[0]), reference(x)[0], atol=1e-6)


def test_init_depends_on_the_seed_alone() -> None:
    model = build("cnn", IMAGE, 10)
    torch.manual_seed(1)
    first = model.init(5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert torch.equal(first, model.init(5))
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first, model.init(6))


def test_init_is_bounded_by_the_fan_in_and_zero_for_convex_models() -> None:
    model = build("cnn", IMAGE, 10)
    fan_in = {"conv1": 25, "conv2": 250, "dense1": 320}
    for name, part in model.unflatten(model.init(3)).items():
        bound = 1 / math.sqrt(fan_in[name.split(".")[0]])
        assert 0.8 * bound < part.abs().max() <= bound
    assert not build("logistic", IMAGE, 10).init(3).any()
    assert not build("svm", IMAGE, 10).init(3).any()


def test_unflatten_is_views_in_the_order_of_the_layout() -> None:
    model = build("cnn", IMAGE, 10)
    params = model.init(1)
    parts = model.unflatten(params)
    expected = [
        f"{layer}.{kind}" for layer in ("conv1", "conv2", "dense1") for kind in ("weight", "bias")
    ]
    assert list(parts) == expected
    assert torch.equal(torch.cat([part.flatten() for part in parts.values()]), params)
    parts["conv1.bias"].fill_(7)
    assert (params[250:260] == 7).all()


def test_schema_is_recorded_and_tells_models_apart() -> None:
    models = [
        build("logistic", (1, 2, 2), 3),
        build("svm", (1, 2, 2), 3),
        build("logistic", (4,), 3),
        build("cnn", (1, 8, 8), 3),
        build("cnn", (1, 8, 8), 3, kernel=3),
        build("cnn", (1, 8, 8), 3, kernel=3, activation="tanh"),
    ]
    assert (
        models[0].schema()
        == "logistic input[1,2,2] padding[0] activation[relu] dense1.weight[3,4] dense1.bias[3]"
    )
    assert len({model.schema() for model in models}) == len(models)
    same = build("logistic", (1, 2, 2), 3, regularization=0.1)
    assert same.schema() == models[0].schema()  # the penalty changes the training, not the vector


def linear(name: str, **options: Any) -> tuple[Model, torch.Tensor]:
    """Return a model of two features and three classes: scores (x0, x1, x0 + x1 + 1)."""
    return build(name, (2,), 3, **options), torch.tensor([1.0, 0, 0, 1, 1, 1, 0, 0, 1])


def test_logistic_loss_by_hand() -> None:
    model, params = linear("logistic")
    x, y = torch.tensor([1.0, 2.0]), torch.tensor(1)
    expected = math.log(math.exp(1) + math.exp(2) + math.exp(4)) - 2
    assert model.loss(params, x, y).item() == pytest.approx(expected, abs=1e-6)
    scores = torch.randn(5, 3)
    labels = torch.tensor([0, 1, 2, 1, 0])
    expected_rows = functional.cross_entropy(scores, labels, reduction="none")
    assert torch.allclose(model.data_loss(scores, labels), expected_rows, atol=1e-6)


@pytest.mark.parametrize(("label", "expected"), [(0, 1 + 4 - 1), (1, 1 + 4 - 2), (2, 0)])
def test_svm_loss_by_hand(label: int, expected: float) -> None:
    """Take scores (1, 2, 4).

    The loss is the best wrong score, plus the margin 1, minus the right one, at least 0.
    """
    model, params = linear("svm")
    assert model.loss(params, torch.tensor([1.0, 2.0]), torch.tensor(label)).item() == expected


def test_penalty_is_half_lambda_norm_squared_inside_the_loss() -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor(2)
    (plain, params), (penalised, _) = linear("svm"), linear("svm", regularization=0.5)
    difference = penalised.loss(params, x, y) - plain.loss(params, x, y)
    assert difference.item() == pytest.approx(0.5 * 0.5 * 5)  # five ones in params


@pytest.mark.parametrize(
    ("channels", "groups"), [((3, 4), (1, 1)), ((10, 20), (2, 4)), ((7, 12), (7, 3))]
)
def test_group_normalization_is_torchs_on_each_example(
    channels: tuple[int, int], groups: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    modules: list[torch.nn.Module] = []
    for inputs, outputs, count in zip((1, channels[0]), channels, groups, strict=True):
        norm = torch.nn.GroupNorm(count, outputs, affine=False)
        modules += [
            torch.nn.Conv2d(inputs, outputs, 5),
            norm,
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        ]
    reference = torch.nn.Sequential(
        *modules, torch.nn.Flatten(), torch.nn.Linear(channels[1] * 16, 10)
    )
    params = torch.cat([part.detach().flatten() for part in reference.parameters()])
    x, y = 5 * torch.rand(3, *IMAGE), torch.tensor([1, 0, 7])
    model = build("cnn", IMAGE, 10, channels=channels, normalization="group")
    assert torch.allclose(model.logits(params, x), reference(x), atol=1e-5)
    assert torch.allclose(model.logits(params, x[0]), reference(x[:1])[0], atol=1e-5)
    fast, slow = example_gradients(model, params, x, y), vmap_gradients(model, params, x, y)
    assert (fast - slow).abs().max() < 1e-5 * slow.norm(dim=1).min()
    assert model.schema() != build("cnn", IMAGE, 10, channels=channels).schema()


def test_evaluate_by_hand_in_unequal_batches() -> None:
    model, params = linear("svm", regularization=0.5)
    x = torch.tensor([[1.0, 2.0]] * 3)
    data = Dataset(x, torch.tensor([2, 0, 2]), 3, "toy/test")
    accuracy, loss = evaluate(model, params.requires_grad_(), data, batch=2)
    assert accuracy == pytest.approx(2 / 3)
    assert loss == pytest.approx(4 / 3)  # losses 0, 4, 0, without the penalty


@pytest.mark.parametrize(("name", "least"), [("logistic", 0.9), ("svm", 0.9), ("cnn", 0.9)])
def test_every_model_learns_the_digits(name: str, least: float) -> None:
    train, test = load("digits", "train", None), load("digits", "test", None)
    model = build(name, (1, 8, 8), 10, kernel=3)
    params = model.init(1).requires_grad_()
    optimizer = torch.optim.Adam([params], lr=0.02)
    for _ in range(60):
        loss = model.data_loss(model.logits(params, train.x), train.y).mean()
        (params.grad,) = torch.autograd.grad(loss, params)
        optimizer.step()
    assert evaluate(model, params, test)[0] > least
