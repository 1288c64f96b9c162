"""A model's file of weights: the safetensors library's bytes, by the weights alone."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch
from tacit_services.journal.weights import Weights, weights

from tacit.models import build


def test_the_bytes_depend_on_the_weights_alone() -> None:
    model = build("cnn", (1, 8, 8), 10)
    params = model.init(3)
    data = weights(model, params)
    assert weights(build("cnn", (1, 8, 8), 10), params.clone()) == data
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert set(header) == {name for name, _ in model.layout}  # no __metadata__


@pytest.mark.parametrize("name", ["cnn", "logistic"])
def test_the_bytes_are_those_of_the_safetensors_library(name: str) -> None:
    model = build(name, (1, 28, 28), 10)
    file, layers = Weights(model, params := model.init(3)), model.unflatten(model.init(3))
    assert file.whole() == safetensors.torch.save(layers)
    # and they are where the parameters are, not copies of them.
    params.zero_()
    assert file.whole() == safetensors.torch.save(model.unflatten(torch.zeros(model.size)))
