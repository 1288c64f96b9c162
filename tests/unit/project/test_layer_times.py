"""`tacit check` says which layer of a module costs what, and what to use instead of a slow one."""

from __future__ import annotations

import torch
from tacit_services.project import layer_times
from torch import nn

from tacit.models.losses import cross_entropy
from tacit.models.module import ModuleModel, module_model


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(2, 8, batch_first=True)
        self.output = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.output(self.memory(x)[0][:, -1]))


def recurrent() -> ModuleModel:
    model = module_model("n:n", Recurrent, shape=(48, 2), outputs=2, loss=cross_entropy)
    assert isinstance(model, ModuleModel)
    return model


def test_each_layer_has_its_share_and_the_slowest_comes_first() -> None:
    model = recurrent()
    assert layer_times.layer_times(model).keys() == {"memory", "output"}
    assert layer_times.words(model).startswith("memory (GRU) ")


def test_a_recurrent_layer_is_named_with_what_to_use_instead() -> None:
    [warning] = layer_times.recurrent(recurrent())
    assert "memory (GRU)" in warning
    assert "nn.Conv1d" in warning
