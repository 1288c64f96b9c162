"""Graphs of networks, for tests that show or hand them on."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.graphs.freezing import Frozen, freeze
from tacit.graphs.graph_file import EXAMPLE, Example, GraphFile, GraphWeight, Node, Of
from tests.helpers.forty_modules import CASES

WORDS, PLACES, WIDE = 60, 6, 8
TARGET = torch.tensor([0, 2])  # the least and the largest class


class Block(nn.Module):
    """A transformer's block, norms first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
        self.qkv, self.proj = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        """Return the places (B, PLACES, WIDE), each mixed with those before it."""
        parts = self.qkv(self.norm1(x)).view(-1, PLACES, 3, 2, WIDE // 2).permute(2, 0, 3, 1, 4)
        q, k, v = parts
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(-1, PLACES, WIDE))
        result: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return result


class Transformer(nn.Module):
    """Words and places, blocks, and scores by the words' own vectors."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDE), nn.Embedding(PLACES, WIDE)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.norm = nn.LayerNorm(WIDE)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, PLACES, WORDS)."""
        y = self.words(x) + self.places(torch.arange(PLACES))
        for block in self.blocks:
            y = block(y)
        return functional.linear(self.norm(y), self.words.weight)


def example(shape: tuple[int, ...], integers: int = 0) -> Example:
    """Return an example; integers: 0 for floats."""
    if integers:
        return Example(shape=shape, dtype="int64", below=integers)
    return Example(shape=shape, dtype="float32", below=None)


@cache
def frozen_case(name: str) -> Frozen:
    """Return one of the forty modules as a graph."""
    case = CASES[name]
    torch.manual_seed(1)
    shape = example(case.shape, case.integers)
    return freeze(name, case.factory(), shape, TARGET, trainable=case.trainable)


@cache
def frozen_transformer(blocks: int = 5) -> Frozen:
    """Return a transformer as a graph."""
    torch.manual_seed(1)
    return freeze("Transformer", Transformer(blocks), example((PLACES,), WORDS), TARGET)


@cache
def tower(layers: int) -> GraphFile:
    """Return a graph of layers that all differ in their widths."""
    widths = [2 + place * place % 97 + place % 5 for place in range(layers + 1)]
    weights, nodes = [], []
    before = EXAMPLE
    for number in range(layers):
        name = f"{2 * number}.weight"
        shape = (widths[number + 1], widths[number])
        weights.append(GraphWeight(name=name, shape=shape, dtype="float32", trained=True))
        linear, tanh = f"%linear{number}", f"%tanh{number}"
        nodes.append(Node(name=linear, op="linear.default", args=(Of(of=before), Of(of=name))))
        nodes.append(Node(name=tanh, op="tanh.default", args=(Of(of=linear),)))
        before = tanh
    return GraphFile(
        format=1,
        example=example((widths[0],)),
        weights=tuple(weights),
        nodes=tuple(nodes),
        output=before,
        loss=None,
        values="0" * 64,
    )
