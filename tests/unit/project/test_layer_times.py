"""`tacit check` says which layer of a module costs what."""

from __future__ import annotations

import torch
from tacit_services.project import layer_times
from torch import nn


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(2, 8, batch_first=True)
        self.output = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.output(self.memory(x)[0][:, -1]))


def test_each_layer_has_its_share_and_the_slowest_comes_first() -> None:
    module, row = Recurrent(), torch.rand(1, 48, 2)
    assert layer_times.layer_times(module, row).keys() == {"memory", "output"}
    assert layer_times.words(module, row).startswith("memory (GRU) ")
