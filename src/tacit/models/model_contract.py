"""Models as functions of one flat float32 parameter vector (d,): what is clipped, noised and sent.

A model has no state, and nothing in it computes across examples (no batch normalisation, no
dropout). The loss is that of ONE example, so `torch.func.vmap(grad(model.loss))` is every example's
own gradient (vectors.py).

The vector is the layers in forward order, each weight followed by its bias, row-major.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch.nn import functional

from tacit.models.objectives import Objective

Normalization = Literal["none", "group"]
Layout = tuple[tuple[str, tuple[int, ...]], ...]
_GROUP = 5  # the most channels that share a mean and a variance


class Window(NamedTuple):
    """A convolution's view of its input; `groups` of channels see only their own.

    Depthwise: each channel is a group of its own.
    """

    kernel: int
    padding: int
    stride: int = 1
    groups: int = 1


class LayerValues(NamedTuple):
    """The input of one layer, and its output before the activation.

    Shapes: the input of a dense layer is (B, in), or (B, T, in) at T places. That of a convolution,
    which has a `window`, is (B, in, side, side). That of an embedding is numbers of words (B, T),
    int64. Some layers give each of their numbers a `scale` and a bias of its own. Their input is
    the numbers before: of "channels" (B, positions, channels), of "features" (B, …, features). Of a
    "shift" only the output counts: its numbers are added.
    """

    input: torch.Tensor
    output: torch.Tensor
    window: Window | None = None
    bias: bool = True
    scale: Literal["", "channels", "features", "shift"] = ""


@dataclass(frozen=True)
class Model(ABC):
    """A loss and scores as functions of parameters (d,) and inputs. It holds no parameters itself.

    Made by `build`, which checks the arguments. Two equal models compute the same. classes: how
    many, or the numbers that it gives for a row. objective: what these mean, None for a score of
    each class.
    """

    name: str
    shape: tuple[int, ...]
    classes: int
    regularization: float = 0.0
    objective: Objective | None = field(default=None, kw_only=True)

    @property
    def labels_below(self) -> int:
        """What labels, and the words of a text, lie below: other rows count for nothing."""
        return self.classes

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """(name, shape) of every parameter, in the order of the flat vector."""

    @abstractmethod
    def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[LayerValues]:
        """Return the layers at work, in the order of the vector.

        x is a batch (B, *shape) or one example (*shape); the last output is the scores.
        """

    def at_work(
        self, params: torch.Tensor, x: torch.Tensor
    ) -> tuple[list[LayerValues], torch.Tensor]:
        """Return every layer at work, as `trace`, and the scores (B, classes).

        x: a batch (B, *shape).
        """
        layers = self.trace(params, x)
        return layers, layers[-1].output

    @property
    @abstractmethod
    def variant(self) -> str:
        """What two models must share, beside name and layers, to have exchangeable vectors."""

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements of every parameter, in order."""
        return tuple(math.prod(shape) for _, shape in self.layout)

    @cached_property
    def size(self) -> int:
        """d: the length of the flat vector."""
        return sum(self.sizes)

    @property
    def traced(self) -> bool:
        """Whether `trace` shows every layer, so one backward pass gives all examples' gradients."""
        return True

    @property
    def trusted(self) -> bool:
        """Whether code that branches on a row's numbers is run, as the owner of the rows says."""
        return False

    @property
    def linear(self) -> bool:
        """Whether one dense layer is all there is.

        An example's gradient is then an outer product.
        """
        return False

    @property
    def first_layer(self) -> slice:
        """The place of the first layer's parameters; MAPA's paper adds noise to these alone."""
        first = self.layout[0][0].split(".")[0]
        return slice(
            0,
            sum(
                size
                for (name, _), size in zip(self.layout, self.sizes, strict=True)
                if name.split(".")[0] == first
            ),
        )

    def init(self, seed: int) -> torch.Tensor:
        """Return initial parameters (d,), from the seed alone.

        PyTorch's default: U(−b, b), b = 1/√fan_in per layer.
        """
        generator = torch.Generator().manual_seed(seed)
        params = torch.rand(self.size, generator=generator).mul_(2).sub_(1)
        for (name, shape), part in zip(
            self.layout, torch.split(params, list(self.sizes)), strict=True
        ):
            if not name.endswith("bias"):
                bound = 1 / math.sqrt(math.prod(shape[1:]))
            part.mul_(bound)  # a bias follows its weight and shares its bound
        return params

    def unflatten(self, params: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return views of the flat vector by name, for safetensors."""
        # Not torch.split, which takes longer to find this out than to do it.
        parts = zip(self.layout, params.split_with_sizes(self.sizes), strict=True)
        return {name: part.view(shape) for (name, shape), part in parts}

    def state(self, params: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return all that the network's own module loads by `load_state_dict`."""
        return self.unflatten(params)

    def logits(self, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return scores (B, classes) of a batch x (B, *shape), or (classes,) of one example."""
        return self.trace(params, x)[-1].output

    def loss(self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return loss () of one example x (*shape), y (), with the penalty λ/2·‖params‖².

        The penalty is inside the per-example loss, so it is inside the gradient that is clipped.
        """
        loss = self.data_loss(self.logits(params, x), y)
        if self.regularization:
            return loss + self.penalty(params)
        return loss

    def penalty(self, params: torch.Tensor) -> torch.Tensor:
        """Return λ/2·‖params‖² (); its gradient is λ·params."""
        return 0.5 * self.regularization * params.dot(params)

    def data_loss(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy (...) of scores (..., classes) against labels y (...).

        Of another objective its own loss. The penalty is left out.
        """
        if self.objective is not None:
            return self.objective.losses(scores, y)
        return torch.logsumexp(scores, -1) - scores.gather(-1, y.unsqueeze(-1)).squeeze(-1)

    @property
    def squared_error(self) -> bool:
        """Whether the loss is the square of the output's distance to a number."""
        return False

    def guesses(self, scores: torch.Tensor) -> torch.Tensor | None:
        """Return the class (...) of the highest of scores (..., classes), or None.

        None: there are no classes.
        """
        if self.objective is not None:
            return None
        return scores.argmax(-1)

    @property
    def trains_objective(self) -> bool:
        """Whether it has an objective, and its loss is the objective's."""
        return self.objective is not None

    def probabilities(self, scores: torch.Tensor) -> torch.Tensor:
        """Return the probability of each class (..., classes), by the softmax of its score."""
        return scores.softmax(-1)

    def random_batch(
        self, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `count` random examples, of no data.

        x: (count, *shape) uniform in [0, 1); y: uniform. For probes and tests.
        """
        x = torch.rand(count, *self.shape, generator=generator)
        if self.objective is not None:
            return x, self.objective.random(count, generator)
        return x, torch.randint(self.classes, (count,), generator=generator)

    def schema(self) -> str:
        """Return a stable line, equal for two models only if their vectors are interchangeable."""
        layers = " ".join(f"{name}{list(shape)}" for name, shape in self.layout)
        return f"{self.name} input{list(self.shape)} {self.variant} {layers}".replace(", ", ",")

    def schema_hash(self) -> bytes:
        """Return SHA-256 of `schema()`, 32 bytes, which a message for this model must carry."""
        return hashlib.sha256(self.schema().encode()).digest()


def normalized(x: torch.Tensor) -> torch.Tensor:
    """Return x (..., channels, side, side) with groups of channels normalized.

    They have mean 0 and variance 1. Each example by itself. Nothing is learned.
    """
    groups = groups_of(x.shape[-3])
    return functional.group_norm(x.reshape(-1, *x.shape[-3:]), groups).view(x.shape)


def groups_of(channels: int) -> int:
    """Return how many groups `normalized` makes of the channels: the fewest of at most 5 each."""
    return next(
        count for count in range(-(-channels // _GROUP), channels + 1) if channels % count == 0
    )


def channels_last(kernel: torch.Tensor) -> torch.Tensor:
    """Return the same kernel (out, in, k, k), laid out so that torch pools 3.5 times faster."""
    # x.to(memory_format=...) would not do: it leaves a kernel of one input channel as it is.
    return (
        kernel.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format).permute(0, 3, 1, 2)
    )
