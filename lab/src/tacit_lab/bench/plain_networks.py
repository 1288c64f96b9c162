"""Networks as people write them, for the benches: torch, and nothing of tacit.

So the venv of another system reads this file, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

PLACES, WIDTH, HEADS, RANK = 128, 256, 4, 8
PICTURE = (3, 32, 32)


class LowRank(nn.Module):
    """A frozen layer, and an addition of a low rank (LoRA, arXiv:2106.09685) that begins at 0."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(requires_grad=False)
        self.down = nn.Parameter(torch.randn(RANK, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output with the addition."""
        more = functional.linear(functional.linear(x, self.down), self.up)
        return torch.as_tensor(self.layer(x) + more)


class Block(nn.Module):
    """Attention and a dense network, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed: nn.Module = nn.Linear(WIDTH, 3 * WIDTH)
        self.out: nn.Module = nn.Linear(WIDTH, WIDTH)
        self.wide: nn.Module = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow: nn.Module = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return places (B, T, WIDTH)."""
        parts = self.mixed(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return torch.as_tensor(x + self.narrow(functional.gelu(self.wide(self.other(x)))))


class Encoder(nn.Module):
    """A transformer of two blocks over vectors of places. low_rank: train additions alone."""

    def __init__(self, *, low_rank: bool = False) -> None:
        super().__init__()
        self.enter = nn.Linear(32, WIDTH)
        self.places = nn.Parameter(torch.randn(PLACES, WIDTH) * 0.02)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, 10)
        if low_rank:
            self.requires_grad_(requires_grad=False)
            for block in self.blocks:
                for name in ("mixed", "out", "wide", "narrow"):
                    setattr(block, name, LowRank(getattr(block, name)))
            self.head.requires_grad_()

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 10) of x (B, PLACES, 32)."""
        x = self.enter(x) + self.places
        for block in self.blocks:
            x = block(x)
        return torch.as_tensor(self.head(x.mean(1)))


class ResidualPart(nn.Module):
    """Two convolutions, and what went in beside them."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(8, channels), nn.GroupNorm(8, width)
        self.first = nn.Conv2d(channels, width, 3, stride, 1)
        self.second = nn.Conv2d(width, width, 3, 1, 1)
        self.beside: nn.Module = nn.Identity()
        if stride > 1 or channels != width:
            self.beside = nn.Conv2d(channels, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return pictures (B, width, …)."""
        inside = self.first(functional.relu(self.first_norm(x)))
        inside = self.second(functional.relu(self.second_norm(inside)))
        return torch.as_tensor(self.beside(x) + inside)


def residual(width: int) -> nn.Module:
    """Return a ResNet of three stages, with group normalization."""
    return nn.Sequential(
        nn.Conv2d(PICTURE[0], width, 3, 1, 1),
        ResidualPart(width, width, 1),
        ResidualPart(width, 2 * width, 2),
        ResidualPart(2 * width, 4 * width, 2),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)),
    )


def dense() -> nn.Module:
    """Return a small dense network whose layers have compiled loops."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def gated() -> nn.Module:
    """Return a small dense network whose layers have none."""
    return nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10))


# Each network's factory and the shape of one example; all have ten classes.
PLAIN_NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "transformer": (Encoder, (PLACES, 32)),
    "lora": (partial(Encoder, low_rank=True), (PLACES, 32)),
    "own-resnet-1.2M": (partial(residual, 64), PICTURE),
    "own-resnet-78k": (partial(residual, 16), PICTURE),
    "own-mlp": (dense, (64,)),
    "own-gated": (gated, (64,)),
}
