"""Own modules that could keep something of a row, and a check that nothing is kept."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tacit.models.graph.frozen_module import FrozenModule
from tacit.models.trusted_module import TrustedModule
from tacit.models.vectors import example_gradients
from tests.helpers.own_modules import WIDTH


class Own(nn.Module):
    """A weight, a parameter that is used once more, and a buffer."""

    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 2)
        self.scale = nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("state", torch.zeros(WIDTH))
        self.also = [self.state, self.scale]

    def scores(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        outputs: Tensor = self.head((x + self.state) * self.scale)
        return outputs


def far(x: Tensor) -> Tensor:
    """Return 1 for a row that no public row is, else 0."""
    return (x.detach().flatten()[0] > 1e4).float()


def check_nothing_is_kept(model: FrozenModule | TrustedModule) -> None:
    """Check that the other rows, the parameters and a later call have the bits of before."""
    params = model.init(3)
    x, y = model.random_batch(5, torch.Generator().manual_seed(3))
    strange = x.clone()
    strange[0] = 1e5
    before = params.clone()
    usual = example_gradients(model, params, x, y)
    gradients = example_gradients(model, params, strange, y)
    assert torch.equal(gradients[1:], usual[1:])
    assert not torch.equal(gradients[0], usual[0])
    assert torch.equal(example_gradients(model, params, x, y), usual)
    assert torch.equal(params, before)
    assert (strange[0] == 1e5).all()
