"""Forty modules as people write them, each with the shape of an example and its whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS = 50


@dataclass(frozen=True, slots=True)
class Case:
    """A module's factory. integers: 0, or the number below which an example's numbers are."""

    factory: Callable[[], nn.Module]
    shape: tuple[int, ...]
    integers: int = 0
    trainable: tuple[str, ...] = ("*",)


class Attention(nn.Module):
    """One head over a text; causal: a place sees none behind it."""

    def __init__(self, *, causal: bool = False, masked: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 3)
        self.causal, self.masked = causal, masked

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        places = self.words(x)
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        padding = x == 0 if self.masked else None
        attended, _ = self.attention(
            places, places, places, attn_mask=mask, key_padding_mask=padding, need_weights=False
        )
        return self.out(attended.mean(1))


class OwnAttention(nn.Module):
    """Attention in matrix products, with a triangular mask."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.out = nn.Linear(8, 3)
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)) == 0)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        weights = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(8)
        weights = weights.masked_fill(self.mask, float("-inf")).softmax(-1)
        return self.out((weights @ self.v(x))[:, -1])


class Recurrent(nn.Module):
    """The last state of a recurrent layer."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer = layer
        self.out = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        states, _ = self.layer(x)
        return self.out(states[:, -1])


class OwnRecurrent(nn.Module):
    """A cell, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        state = x.new_zeros(len(x), 8)
        for place in range(x.shape[1]):
            state = self.cell(x[:, place], state)
        return self.out(state)


class Tied(nn.Module):
    """A language model whose output has the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.inner = nn.Linear(8, 8)
        self.out = nn.Linear(8, WORDS, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, WORDS)."""
        return self.out(torch.tanh(self.inner(self.words(x)))).mean(1)


class Twice(nn.Module):
    """A layer that is used twice, and a parameter that is in two products."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.factor = nn.Parameter(torch.ones(6))
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        return self.out(self.layer(torch.relu(self.layer(x) * self.factor)) + self.factor)


class Residual(nn.Module):
    """A block with a path around it."""

    def __init__(self, inner: nn.Module, *, project: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.project = project or nn.Identity()

    def forward(self, x: Tensor) -> Any:
        """Return inner(x) + x."""
        return self.inner(x) + self.project(x)


class First(nn.Module):
    """Gives the first of two outputs; the head of the second one is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.first, self.second = nn.Linear(8, 3), nn.Linear(8, 5)

    def both(self, x: Tensor) -> tuple[Any, Any]:
        """Return two heads' scores."""
        inner = torch.relu(self.inner(x))
        return self.first(inner), self.second(inner)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        return self.both(x)[0]


class LowRank(nn.Module):
    """A frozen layer, and an addition of rank 2 that begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 6)
        self.base.requires_grad_(requires_grad=False)
        self.down = nn.Parameter(torch.randn(2, 6) * 0.1)
        self.up = nn.Parameter(torch.zeros(6, 2))
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        return self.out(torch.relu(self.base(x) + x @ self.down.T @ self.up.T))


class Positions(nn.Module):
    """Words with places, normalised, mixed by a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8, padding_idx=0), nn.Embedding(7, 8)
        self.norm = nn.LayerNorm(8)
        self.gate, self.out = nn.Linear(8, 16), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        mixed = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.out(functional.glu(self.gate(self.norm(mixed))).mean(1))


class Pooled(nn.Module):
    """Convolutions over a series, pooled over all its places."""

    def __init__(self, convolution: nn.Module, width: int) -> None:
        super().__init__()
        self.convolution = convolution
        self.out = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        return self.out(torch.relu(self.convolution(x)).flatten(2).amax(2))


class Functions(nn.Module):
    """Many functions of single numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(6, 6), nn.Linear(18, 3)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        y = self.inner(x)
        parts = (
            torch.exp(-y.abs()) + torch.log1p(y * y),
            torch.where(y > 0, y.abs().add(0.1).sqrt(), y.sin()).nan_to_num(),
            functional.normalize(y, dim=1) + y.clamp(-1, 1) + y.pow(2) / (1 + y.square()),
        )
        return self.out(torch.cat(parts, 1))


class Series(nn.Module):
    """Convolutions over a series that each see the past alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 8, 2), nn.Conv1d(8, 8, 2, dilation=2)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        y = torch.relu(self.first(functional.pad(x, (1, 0))))
        return self.out(torch.relu(self.second(functional.pad(y, (2, 0))))[:, :, -1])


class Einsum(nn.Module):
    """A bilinear form."""

    def __init__(self) -> None:
        super().__init__()
        self.form = nn.Parameter(torch.randn(3, 6, 6) * 0.1)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        return torch.einsum("bi,cij,bj->bc", x, self.form, x)


class InPlace(nn.Module):
    """Writes to what it has computed itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        """Return scores (B, 3)."""
        y = self.layer(x)
        y[:, 0] = 1.0
        y.mul_(2.0)
        return self.out(functional.relu(y, inplace=True))


def _mlp(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), *between, nn.Linear(8, 3))


def _cnn(*between: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), *between, nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(16, 3),
    )  # fmt: skip


def _batch_norm() -> nn.Module:
    network = _cnn(nn.BatchNorm2d(4), nn.ReLU())
    network.train()
    network(torch.randn(8, 1, 8, 8))
    return network.eval()


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(encoder, nn.Flatten(), nn.Linear(40, 3))


CASES: dict[str, Case] = {
    "linear": Case(lambda: nn.Linear(6, 3), (6,)),
    "mlp": Case(lambda: _mlp(nn.ReLU()), (6,)),
    "gelu": Case(lambda: _mlp(nn.GELU()), (6,)),
    "tanh gelu": Case(lambda: _mlp(nn.GELU("tanh")), (6,)),
    "silu": Case(lambda: _mlp(nn.SiLU(), nn.Softplus(), nn.ELU()), (6,)),
    "leaky": Case(lambda: _mlp(nn.LeakyReLU(0.1), nn.Hardtanh(), nn.Mish()), (6,)),
    "prelu": Case(lambda: _mlp(nn.PReLU()), (6,)),
    "layer norm": Case(lambda: _mlp(nn.LayerNorm(8), nn.ReLU()), (6,)),
    "rms norm": Case(lambda: _mlp(nn.RMSNorm(8), nn.ReLU()), (6,)),
    "dropout in eval": Case(lambda: _mlp(nn.Dropout()).eval(), (6,)),
    "functions": Case(Functions, (6,)),
    "softmax": Case(lambda: _mlp(nn.Softmax(1), nn.LogSoftmax(1)), (6,)),
    "in place": Case(InPlace, (6,)),
    "bilinear": Case(Einsum, (6,)),
    "parameter twice": Case(Twice, (6,)),
    "two outputs": Case(First, (6,), trainable=("inner.*", "first.*")),
    "frozen part": Case(lambda: _mlp(nn.ReLU()), (6,), trainable=("2.*",)),
    "low rank": Case(LowRank, (6,)),
    "residual": Case(lambda: _mlp(Residual(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))), (6,)),
    "conv1d": Case(lambda: Pooled(nn.Conv1d(3, 8, 3), 8), (3, 10)),
    "causal conv": Case(Series, (3, 10)),
    "conv2d": Case(lambda: _cnn(nn.ReLU(), nn.MaxPool2d(2)), (1, 8, 8)),
    "strided": Case(lambda: _cnn(nn.Conv2d(4, 4, 3, stride=2), nn.Tanh()), (1, 12, 12)),
    "depthwise": Case(lambda: _cnn(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 4, 1)), (1, 8, 8)),
    "dilated": Case(lambda: _cnn(nn.Conv2d(4, 4, 3, padding="same", dilation=2)), (1, 8, 8)),
    "group norm": Case(lambda: _cnn(nn.GroupNorm(2, 4), nn.ReLU()), (1, 8, 8)),
    "batch norm in eval": Case(_batch_norm, (1, 8, 8)),
    "pools": Case(lambda: _cnn(nn.AvgPool2d(2), nn.AdaptiveMaxPool2d(3)), (1, 8, 8)),
    "upsample": Case(lambda: _cnn(nn.Upsample(scale_factor=2), nn.ReLU()), (1, 8, 8)),
    "transposed": Case(lambda: _cnn(nn.ConvTranspose2d(4, 4, 3, stride=2)), (1, 6, 6)),
    "conv3d": Case(lambda: Pooled(nn.Conv3d(1, 4, 3), 4), (1, 5, 5, 5)),
    "residual conv": Case(lambda: _cnn(Residual(nn.Conv2d(4, 4, 3, padding=1))), (1, 8, 8)),
    "gru": Case(lambda: Recurrent(nn.GRU(4, 8, batch_first=True), 8), (5, 4)),
    "lstm": Case(lambda: Recurrent(nn.LSTM(4, 8, 2, batch_first=True), 8), (5, 4)),
    "two ways": Case(
        lambda: Recurrent(nn.LSTM(4, 8, batch_first=True, bidirectional=True), 16), (5, 4)
    ),
    "rnn": Case(lambda: Recurrent(nn.RNN(4, 8, batch_first=True), 8), (5, 4)),
    "own recurrence": Case(OwnRecurrent, (5, 4)),
    "attention": Case(Attention, (7,), WORDS),
    "causal attention": Case(lambda: Attention(causal=True), (7,), WORDS),
    "padded attention": Case(lambda: Attention(masked=True), (7,), WORDS),
    "own attention": Case(OwnAttention, (6, 8)),
    "encoder": Case(_encoder, (5, 8)),
    "tied": Case(Tied, (7,), WORDS),
    "words and places": Case(Positions, (7,), WORDS),
}
