"""tacit's networks as plain torch modules: what a trained model is used with, or an own one begins.

They know nothing of privacy or of flat vectors. Names and order of their parameters are those of
`model.safetensors`, so that a model that tacit has trained is loaded by `load_state_dict`:

    >>> import torch
    >>> from tacit.models import build
    >>> model = build("mlp", (1, 8, 8), 10, hidden=(16,))
    >>> network = Cnn((1, 8, 8), 10, channels=(), hidden=(16,))
    >>> network.load_state_dict(model.unflatten(model.init(seed=1)))
    <All keys matched successfully>

Each keeps examples apart, and can be a run file's entry (`tacit.models.zoo.modules:Cnn`). The sizes
are explained at `tacit.models.build`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.models.bins import BinnedColumn
from tacit.models.pair_cells import PairCells
from tacit.models.places import as_inputs, width

_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
_GROUP = 5  # the most channels that share a mean and a variance


def group_norm(channels: int) -> nn.GroupNorm:
    """Return a norm of groups of at most five channels, as few as possible; nothing is learned."""
    counts = range(-(-channels // _GROUP), channels + 1)
    groups = next(count for count in counts if channels % count == 0)
    return nn.GroupNorm(groups, channels, affine=False)


class Logistic(nn.Module):
    """`logistic` and `svm`: a score of each class is a weighted sum of the row's numbers.

    (B, *shape) -> (B, classes).
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.dense1 = nn.Linear(math.prod(shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.dense1(torch.flatten(x, 1)))


class Additive(nn.Module):
    """`additive`: a score of each class is the sum of what the bins of a row's columns say.

    (B, *shape) -> (B, classes). columns: of each its first place, how many places it has, its bins,
    and between what a number lies. More than one place are one-hot. pairs: of columns, by their
    numbers, that say something together.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        columns: Sequence[tuple[int, int, int, float, float]],
        pairs: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.columns = [
            BinnedColumn("", place, bins, width, low, high, ("",) * width if width > 1 else ())
            for place, width, bins, low, high in columns
        ]
        self.pairs = [
            PairCells(one, other, self.columns[one], self.columns[other]) for one, other in pairs
        ]
        self.bins = nn.Linear(width(self.columns, self.pairs), classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.bins(as_inputs(self.columns, x, self.pairs)))


class Cnn(nn.Module):
    """`mlp` (no channels), and `cnn`.

    (B, *shape) -> (B, classes).
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        channels: tuple[int, ...] = (10, 20),
        kernel: int = 5,
        hidden: tuple[int, ...] = (),
        activation: str = "relu",
        normalization: str = "none",
        pool_every: int = 1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        self.activate = _ACTIVATIONS[activation]
        self.pool_every = pool_every
        self.convolutions = len(channels)
        self.dense = len(hidden) + 1
        sizes = [shape[0], *channels]
        for number, (inputs, outputs) in enumerate(pairwise(sizes), 1):
            setattr(self, f"conv{number}", nn.Conv2d(inputs, outputs, kernel, padding=padding))
            norm = group_norm(outputs) if normalization == "group" else nn.Identity()
            setattr(self, f"norm{number}", norm)
        with torch.no_grad():
            features = self._convolved(torch.zeros(1, *shape)).shape[1]
        widths = [features, *hidden, classes]
        for number, (inputs, outputs) in enumerate(pairwise(widths), 1):
            setattr(self, f"dense{number}", nn.Linear(inputs, outputs))

    def _convolved(self, x: Tensor) -> Tensor:
        for number in range(1, self.convolutions + 1):
            x = getattr(self, f"norm{number}")(getattr(self, f"conv{number}")(x))
            if number % self.pool_every == 0:
                x = functional.max_pool2d(x, 2)
            x = self.activate(x)
        return torch.flatten(x, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self._convolved(x)
        for number in range(1, self.dense):
            x = self.activate(getattr(self, f"dense{number}")(x))
        return cast(Tensor, getattr(self, f"dense{self.dense}")(x))


class Deep(nn.Module):
    """`resnet` (arXiv:1512.03385) and `mobilenet` (arXiv:1704.04861): three stages of blocks.

    A block is two convolutions. A `resnet`'s are added to the block's input. Where the size
    changes, every other place of the input is kept and channels of zeros are added. (B, *shape) ->
    (B, classes).
    """

    def __init__(
        self, name: str, shape: tuple[int, ...], classes: int, width: int = 16, blocks: int = 1
    ) -> None:
        super().__init__()
        self.residual = name == "resnet"
        self.blocks = list[tuple[str, int, int]]()
        self._add("conv1", nn.Conv2d(shape[0], width, 3, padding=1))
        channels = width
        for number in range(3 * blocks):
            stage, block = divmod(number, blocks)
            if stage and not block:
                stride = 2
            else:
                stride = 1
            outputs = width << stage
            self._block(f"stage{stage + 1}block{block + 1}", channels, outputs, stride)
            channels = outputs
        self.dense1 = nn.Linear(channels, classes)

    def _add(self, name: str, convolution: nn.Conv2d) -> None:
        setattr(self, name, convolution)
        setattr(self, f"{name}_norm", group_norm(convolution.out_channels))

    def _block(self, name: str, inputs: int, outputs: int, stride: int) -> None:
        inner, groups = (outputs, 1) if self.residual else (inputs, inputs)
        kernel = 3 if self.residual else 1
        self._add(f"{name}a", nn.Conv2d(inputs, inner, 3, stride, padding=1, groups=groups))
        self._add(f"{name}b", nn.Conv2d(inner, outputs, kernel, padding=kernel // 2))
        self.blocks.append((name, stride, outputs - inputs))

    def _convolved(self, name: str, x: Tensor) -> Tensor:
        return cast(Tensor, getattr(self, f"{name}_norm")(getattr(self, name)(x)))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self._convolved("conv1", x))
        for name, stride, more in self.blocks:
            inside = self._convolved(f"{name}b", torch.relu(self._convolved(f"{name}a", x)))
            if self.residual:
                shortcut = x[..., ::stride, ::stride]
                inside = inside + functional.pad(shortcut, (0, 0, 0, 0, 0, more))
            x = torch.relu(inside)
        return cast(Tensor, self.dense1(x.mean((2, 3))))


class LstmLayer(nn.Module):
    """A layer of LSTM cells: (B, T, inputs) -> (B, T, cells); input, forget, cell and output gates.

    Every gate is written with plain operations, so that torch can map it over examples.
    """

    def __init__(self, inputs: int, cells: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(4 * cells, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(4 * cells).uniform_(-bound, bound))
        bound = 1 / math.sqrt(cells)
        self.recurrent = nn.Parameter(torch.empty(4 * cells, cells).uniform_(-bound, bound))
        with torch.no_grad():
            self.bias[cells : 2 * cells] = 1.0  # cells remember by default

    def forward(self, x: Tensor) -> Tensor:
        gates = functional.linear(x, self.weight, self.bias)
        h = gates.new_zeros(len(x), self.recurrent.shape[1])
        c = h
        states = []
        for part in gates.unbind(1):
            i, f, g, o = (part + functional.linear(h, self.recurrent)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, 1)


class LanguageModel(nn.Module):
    """`lstm`: words (B, T) -> scores of the next word at every place (B, T, classes)."""

    def __init__(self, classes: int, embedding: int = 64, hidden: tuple[int, ...] = (64,)) -> None:
        super().__init__()
        self.layers = len(hidden)
        sizes = (embedding, *hidden)
        self.embedding = nn.Embedding(classes, embedding)
        for number, (inputs, cells) in enumerate(pairwise(sizes), 1):
            setattr(self, f"lstm{number}", LstmLayer(inputs, cells))
        self.dense1 = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.embedding(x.long())
        for number in range(1, self.layers + 1):
            states = getattr(self, f"lstm{number}")(states)
        return cast(Tensor, self.dense1(states))
