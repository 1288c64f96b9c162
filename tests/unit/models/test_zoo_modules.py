"""tacit's networks as plain modules: the same numbers, by the same names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tacit.models import Model, build
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model
from tacit.models.user_module import UserModule
from tacit.models.vectors import example_gradients
from tacit.models.zoo.modules import Cnn, Deep, LanguageModel, Logistic

IMAGE = (3, 12, 12)
SMALL: dict[str, Any] = {"channels": (4, 6), "kernel": 3, "normalization": "group"}
PAIRS: dict[str, tuple[Callable[[], Model], Callable[[], nn.Module]]] = {
    "logistic": (lambda: build("logistic", (7,), 3), lambda: Logistic((7,), 3)),
    "mlp": (
        lambda: build("mlp", (7,), 3, hidden=(5, 4), activation="tanh"),
        lambda: Cnn((7,), 3, channels=(), hidden=(5, 4), activation="tanh"),
    ),
    "cnn": (lambda: build("cnn", (1, 28, 28), 10), lambda: Cnn((1, 28, 28), 10)),
    "cnn, normalised, pooled once": (
        lambda: build("cnn", IMAGE, 3, hidden=(5,), pool_every=2, **SMALL),
        lambda: Cnn(IMAGE, 3, hidden=(5,), pool_every=2, padding=1, **SMALL),
    ),
    "resnet": (
        lambda: build("resnet", IMAGE, 3, width=4, blocks=2),
        lambda: Deep("resnet", IMAGE, 3, width=4, blocks=2),
    ),
    "mobilenet": (
        lambda: build("mobilenet", IMAGE, 3, width=4, blocks=2),
        lambda: Deep("mobilenet", IMAGE, 3, width=4, blocks=2),
    ),
    "lstm": (
        lambda: build("lstm", (6,), 11, embedding=5, hidden=(4, 3)),
        lambda: LanguageModel(11, embedding=5, hidden=(4, 3)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_tacit_has_trained_is_loaded_and_says_the_same(name: str) -> None:
    model, network = PAIRS[name][0](), PAIRS[name][1]()
    params = model.init(3) + 0.1
    network.load_state_dict(model.unflatten(params))  # strict: the same names and shapes
    x, _ = model.random_batch(5, torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(network(x), model.logits(params, x), rtol=1e-4, atol=1e-5)
    assert [key for key, _ in network.named_parameters()] == [key for key, _ in model.layout]


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "lstm"])
def test_as_an_own_module_it_has_the_same_gradients(name: str) -> None:
    model, factory = PAIRS[name][0](), PAIRS[name][1]
    module = module_model(
        "nets:net", factory, shape=model.shape, outputs=model.classes, loss=cross_entropy
    )
    params = model.init(3) + 0.1
    x, y = model.random_batch(5, torch.Generator().manual_seed(1))
    assert torch.allclose(
        example_gradients(module, params, x, y),
        example_gradients(model, params, x, y),
        rtol=1e-3,
        atol=1e-5,
    )


def test_a_run_file_may_name_it(tmp_path: Path) -> None:
    arguments = {"shape": (7,), "classes": 3, "channels": (), "hidden": (5,)}
    user = UserModule("tacit.models.zoo.modules:Cnn", arguments, None, None, ("*",), tmp_path)
    assert user.build((7,), 3, 0.0).size == 7 * 5 + 5 + 5 * 3 + 3
