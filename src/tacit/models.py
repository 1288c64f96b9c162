"""Small models as functions of one flat float32 parameter vector (d,): what is clipped, noised and sent.

Nothing here has state and nothing looks across examples (no batch normalisation, no dropout): the loss is
that of ONE example, so `torch.func.vmap(grad(model.loss))` is every example's own gradient (vectors.py).

The vector is the layers in forward order, each weight followed by its bias, row-major.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch.nn import functional

from tacit.datasets.load import Dataset
from tacit.errors import ConfigError

NAMES = ("logistic", "svm", "cnn")
Activation = Literal["relu", "tanh"]
Normalization = Literal["none", "group"]
_GROUP = 5  # channels that share a mean and a variance, at most
_Layout = tuple[tuple[str, tuple[int, ...]], ...]


class Layer(NamedTuple):
    """One layer at work: its input, and its output before the activation."""

    input: torch.Tensor
    output: torch.Tensor


@dataclass(frozen=True)
class Model:
    """Convolutions (with ReLU and 2×2 max-pooling), then dense layers; a linear model has neither.

    Made by `build`, which checks the arguments. Two models that are equal by value compute the same.
    """

    name: str
    shape: tuple[int, ...]
    classes: int
    channels: tuple[int, ...] = ()
    kernel: int = 1
    padding: int = 0
    hidden: tuple[int, ...] = ()
    regularization: float = 0.0
    activation: Activation = "relu"
    normalization: Normalization = "none"

    @cached_property
    def layout(self) -> _Layout:
        """(name, shape) of every parameter in the order of the flat vector."""
        layers: list[tuple[str, tuple[int, ...]]] = []
        depth, side = self.shape[0], self.shape[-1]
        for number, width in enumerate(self.channels, 1):
            layers += [(f"conv{number}.weight", (width, depth, self.kernel, self.kernel))]
            layers += [(f"conv{number}.bias", (width,))]
            depth, side = width, _after(side, self.kernel, self.padding)
        features = depth * side * side if self.channels else math.prod(self.shape)
        for number, (inputs, outputs) in enumerate(pairwise((features, *self.hidden, self.classes)), 1):
            layers += [(f"dense{number}.weight", (outputs, inputs)), (f"dense{number}.bias", (outputs,))]
        return tuple(layers)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of elements of every parameter, in order."""
        return tuple(math.prod(shape) for _, shape in self.layout)

    @cached_property
    def size(self) -> int:
        """d: the length of the flat vector."""
        return sum(self.sizes)

    @property
    def linear(self) -> bool:
        """Whether one dense layer is all there is: then an example's gradient is an outer product."""
        return not self.channels and not self.hidden

    @property
    def first_layer(self) -> slice:
        """Where the first layer's weight and bias lie: the paper adds its noise to these alone."""
        return slice(0, self.sizes[0] + self.sizes[1])

    def init(self, seed: int) -> torch.Tensor:
        """Initial parameters (d,), from the seed alone.

        Zeros for the convex models; for the CNN, PyTorch's default: U(−b, b) with b = 1/√fan_in per layer.
        """
        if self.name != "cnn":
            return torch.zeros(self.size)
        generator = torch.Generator().manual_seed(seed)
        params = torch.rand(self.size, generator=generator).mul_(2).sub_(1)
        for (name, shape), part in zip(self.layout, torch.split(params, list(self.sizes)), strict=True):
            if name.endswith("weight"):
                bound = 1 / math.sqrt(math.prod(shape[1:]))
            part.mul_(bound)  # a bias follows its weight and shares its bound
        return params

    def unflatten(self, params: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views of the flat vector by name, for safetensors."""
        parts = zip(self.layout, torch.split(params, list(self.sizes)), strict=True)
        return {name: part.view(shape) for (name, shape), part in parts}

    def logits(self, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Scores (B, classes) of a batch x (B, *shape); or (classes,) of one example (*shape)."""
        return self.trace(params, x)[-1].output

    def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[Layer]:
        """What goes into every layer and what its weight and bias make of it, in the order of the vector."""
        weights = iter(self.unflatten(params).values())
        layers = []
        for _ in self.channels:
            kernel = _channels_last(next(weights))
            layers.append(Layer(x, functional.conv2d(x, kernel, next(weights), padding=self.padding)))
            # After pooling: the same values and gradients as before it (it rises), on a quarter of the elements.
            x = self._activate(functional.max_pool2d(self._normalize(layers[-1].output), 2))
        x = x.flatten(-len(self.shape))
        for _ in (*self.hidden, self.classes):
            layers.append(Layer(x, functional.linear(x, next(weights), next(weights))))
            x = self._activate(layers[-1].output)
        return layers

    def _normalize(self, x: torch.Tensor) -> torch.Tensor:
        """Groups of channels to mean 0 and variance 1, each example by itself; nothing is learned."""
        if self.normalization == "none":
            return x
        channels = x.shape[-3]
        groups = next(count for count in range(-(-channels // _GROUP), channels + 1) if channels % count == 0)
        return functional.group_norm(x.reshape(-1, *x.shape[-3:]), groups).view(x.shape)

    def _activate(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) if self.activation == "tanh" else functional.relu(x)

    def loss(self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Loss () of one example x (*shape), y (), with the penalty λ/2·‖params‖².

        The penalty is inside the per-example loss, so it is inside the gradient that is clipped.
        """
        loss = self.data_loss(self.logits(params, x), y)
        return loss + self.penalty(params) if self.regularization else loss

    def penalty(self, params: torch.Tensor) -> torch.Tensor:
        """λ/2·‖params‖² (); its gradient is λ·params."""
        return 0.5 * self.regularization * params.dot(params)

    def data_loss(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Loss of scores (..., classes) against labels y (...), without the penalty, shape (...)."""
        if self.name == "svm":
            return _hinge(scores, y)
        return torch.logsumexp(scores, -1) - scores.gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def schema(self) -> str:
        """A stable line that two models share exactly when their vectors are interchangeable (hash input)."""
        layers = " ".join(f"{name}{list(shape)}" for name, shape in self.layout)
        how = f"padding[{self.padding}] activation[{self.activation}]"
        how += "" if self.normalization == "none" else f" normalization[{self.normalization}]"
        return f"{self.name} input{list(self.shape)} {how} {layers}".replace(", ", ",")


def _channels_last(kernel: torch.Tensor) -> torch.Tensor:
    """The same kernel (out, in, k, k) laid out so that torch pools its output 3.5 times faster."""
    # Not .to(memory_format=...): that leaves a kernel of one input channel as it is.
    return kernel.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format).permute(0, 3, 1, 2)


def _hinge(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Crammer and Singer (2001): max(0, 1 + the best wrong score − the right one).

    Chosen over one-vs-rest by measurement with clipped per-example gradients (600 steps of 128, best of three
    learning rates; MNIST, C = 1, no noise: 0.909 against 0.890; C = 5, z = 0.8: 0.893 against 0.884).
    """
    right = scores.gather(-1, y.unsqueeze(-1))
    margins = (scores - right + 1).scatter(-1, y.unsqueeze(-1), 0.0)
    return margins.amax(-1).clamp_min(0)


def build(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, ...] = (10, 20),
    kernel: int = 5,
    hidden: tuple[int, ...] = (),
    regularization: float = 0.0,
    activation: Activation = "relu",
    normalization: Normalization = "none",
) -> Model:
    """A model for inputs of `shape` and `classes` classes.

    `logistic` is softmax regression and `svm` a linear multi-class SVM; both ignore the layer sizes. `cnn` is
    the MAPA paper's five layers (conv, pool, conv, pool, fully connected) and `hidden` adds dense ones:
    hidden=(50,) is its released testbed's network, 21,840 parameters on 28x28. `tanh` keeps activations, and so
    per-example gradients, bounded: clipping then costs less (Papernot et al., arXiv:2007.14191). `group` normalizes
    the convolutions' outputs of each example by itself, without parameters; batch normalization looks across examples.

    Raises ConfigError naming the field and the value.
    """
    if classes < 2 or regularization < 0:
        raise ConfigError(f"model: classes = {classes} must be >= 2, regularization = {regularization} >= 0")
    if normalization != "none" and (name != "cnn" or normalization != "group"):
        raise ConfigError(f"model.normalization = {normalization!r}: group is for cnn, other models have none")
    if name in ("logistic", "svm"):
        return Model(name, shape, classes, regularization=regularization)
    if name != "cnn":
        raise ConfigError(f"model.name = {name!r} is not known; use one of: {', '.join(NAMES)}")
    padding = _padding(shape, channels, kernel)
    if min(channels + hidden) < 1:
        raise ConfigError(f"model.channels = {channels} and model.hidden = {hidden} must be positive")
    return Model(name, shape, classes, channels, kernel, padding, hidden, regularization, activation, normalization)


def _after(side: int, kernel: int, padding: int) -> int:
    """The side of the image after one convolution and one pooling."""
    return (side + 2 * padding - kernel + 1) // 2


def _padding(shape: tuple[int, ...], channels: tuple[int, ...], kernel: int) -> int:
    """0, as in the paper, where that leaves at least 2×2 for the dense layers; else kernel // 2 ("same")."""
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ConfigError(f"model.name = 'cnn' needs square images (depth, side, side), not {shape}")
    if not channels:
        raise ConfigError("model.channels = () must have at least one layer")
    for padding, least in ((0, 2), (kernel // 2, 1)):
        side = shape[1]
        for _ in channels:
            side = _after(side, kernel, padding) if side + 2 * padding >= kernel > 0 else 0
        if side >= least and (padding == 0 or kernel % 2 == 1):
            return padding
    raise ConfigError(f"model.kernel = {kernel} does not fit {len(channels)} convolutions on {shape[1]}x{shape[2]}")


@torch.no_grad()
def evaluate(model: Model, params: torch.Tensor, data: Dataset, batch: int = 1000) -> tuple[float, float]:
    """(accuracy in [0, 1], mean loss without the penalty) over a non-empty dataset."""
    right, loss = 0, 0.0
    for x, y in zip(torch.split(data.x, batch), torch.split(data.y, batch), strict=True):
        scores = model.logits(params, x)
        right += int((scores.argmax(-1) == y).sum())
        loss += float(model.data_loss(scores, y).double().sum())
    return right / len(data), loss / len(data)
