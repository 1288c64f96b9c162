"""The network of this example: a small transformer over characters, with low-rank additions."""

import torch
from torch import Tensor, nn
from torch.nn import functional

CHARACTERS, PLACES, WIDTH, HEADS = 96, 64, 64, 4


class LowRank(nn.Module):
    """A frozen layer and an addition of a low rank, which begins at zero (arXiv:2106.09685)."""

    def __init__(self, layer: nn.Linear, rank: int):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, and the addition's."""
        return self.layer(x) + functional.linear(functional.linear(x, self.down), self.up)


class Block(nn.Module):
    """Attention to what came before, then two dense layers; each with a residual."""

    def __init__(self):
        super().__init__()
        self.norm, self.other = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, PLACES, WIDTH)."""
        parts = self.mixed(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.other(x))))


class Net(nn.Module):
    """Scores (B, PLACES, CHARACTERS) of the next character. rank: 0 trains all of it."""

    def __init__(self, rank: int = 0):
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.places = nn.Parameter(torch.randn(PLACES, WIDTH) * 0.02)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.last = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CHARACTERS)
        if rank:
            self.requires_grad_(False)
            for block in self.blocks:
                for name in ("mixed", "out", "wide", "narrow"):
                    setattr(block, name, LowRank(getattr(block, name), rank))

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, PLACES), numbers of characters."""
        inside = self.characters(x) + self.places
        for block in self.blocks:
            inside = block(inside)
        return self.head(self.last(inside))


def with_additions(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state of Net() by the names of Net(rank): a layer's own lie in `layer`."""
    named = {}
    for name, value in state.items():
        place, _, part = name.rpartition(".")
        inside = place.rpartition(".")[2] in ("mixed", "out", "wide", "narrow")
        named[f"{place}.layer.{part}" if inside else name] = value
    return named
