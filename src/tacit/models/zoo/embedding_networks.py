"""The two halves of a vertical model: a party's embedding h_m and the server's head, as models.

An embedding maps x_{n,m} to h_{n,m}, (9) of VAFL (arXiv:2007.06081); with `smoothing` every layer
but the last gets a random neuron, (10) and (11b). The neuron of the last layer, (11a), is the
release's noise and lives in privacy/release/embeddings.py. A head's "example" is the M embeddings
of one record, (M, width).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models import Activation, Layered, LayerValues, Model, build
from tacit.models.model_contract import Layout
from tacit.models.zoo.lstm import stacked, unrolled

EmbeddingKind = Literal["linear", "mlp", "cnn", "lstm", "columns"]
Affine = tuple[tuple[float, ...], tuple[float, ...]]  # a gain and an offset of each place
Combine = Literal["sum", "concat"]
Neuron = Callable[[Tensor], Tensor]  # w_l·u_{l-1} + b_l -> the same + Z_l


@dataclass(frozen=True)
class EmbeddingNetwork(Layered):
    """A linear, dense or convolutional embedding (9)."""

    smoothing: float = 0.0  # c_l of (11b)

    def init(self, seed: int) -> Tensor:
        """Return random parameters, for a linear embedding too.

        With all parties and θ_0 at zero, nothing would ever move.
        """
        return Model.init(self, seed)

    def embed(self, params: Tensor, x: Tensor, smooth: torch.Generator | None = None) -> Tensor:
        """Return h (b, classes) of x (b, *shape), before clipping and (11a).

        smooth: if given, Z_l of (11b) is drawn from it. Z_l is for smoothness only: no privacy is
        claimed for it, and its generator may be public.
        """
        weights = iter(self.unflatten(params).values())
        perturb = neuron(self.smoothing, smooth)
        for _ in self.channels:
            x = perturb(functional.conv2d(x, next(weights), next(weights), padding=self.padding))
            # Pooling comes after the noise, as (10) perturbs every place.
            x = functional.max_pool2d(self._activate(x), 2)
        x = x.flatten(1)
        for _ in self.hidden:
            x = self._activate(perturb(functional.linear(x, next(weights), next(weights))))
        return functional.linear(x, next(weights), next(weights))


@dataclass(frozen=True)
class ColumnsEmbedding(EmbeddingNetwork):
    """A row itself as the embedding: (gain·x - offset)/√columns in its first places, 0 in others.

    All constants are public, and nothing is drawn: a party's parameters say nothing of its rows.
    columns: how many the row was encoded from, so that a usual row is about 1 long.
    """

    affine: Affine = ((), ())
    columns: int = 1

    def init(self, seed: int) -> Tensor:
        """Return the weight (classes, places) with the gains on its diagonal, then the bias."""
        gains, offsets = map(torch.tensor, self.affine)
        places = len(gains)
        weight = torch.zeros(self.classes, places)
        weight[:places] = torch.diag(gains)
        bias = torch.zeros(self.classes)
        bias[:places] = -offsets
        return torch.cat([weight.flatten(), bias]) / math.sqrt(self.columns)


@dataclass(frozen=True)
class Recurrent(Model):
    """An embedding by LSTM layers over a sequence of numbers, shape (T, f).

    A dense layer stands at the end. The dense layer sees the last state of the last layer. An
    image's sequence is its rows, from the top; a table's, its columns, one number each.
    """

    hidden: tuple[int, ...] = (16,)
    smoothing: float = 0.0  # c_l of (11b), on each layer's states

    @cached_property
    def layout(self) -> Layout:
        """(name, shape) of every parameter.

        The four gates are input, forget, cell and output, in this order.
        """
        return stacked(self.shape[1], self.hidden, self.classes)

    @property
    def variant(self) -> str:
        """The order of the gates, and that the last state counts."""
        return "gates[ifgo] last"

    def trace(self, params: Tensor, x: Tensor) -> list[LayerValues]:
        """Return the last layer only.

        An embedding's other layers are never asked for gradients of scores.
        """
        states = self._last(params, x, lambda u: u)
        top = list(self.unflatten(params).values())[-2:]
        return [LayerValues(states, functional.linear(states, *top))]

    def embed(self, params: Tensor, x: Tensor, smooth: torch.Generator | None = None) -> Tensor:
        """Embed the examples, as `EmbeddingNetwork.embed` does."""
        states = self._last(params, x, neuron(self.smoothing, smooth))
        return functional.linear(states, *list(self.unflatten(params).values())[-2:])

    def _last(self, params: Tensor, x: Tensor, perturb: Neuron) -> Tensor:
        """Return u_{L-1} (b, hidden[-1])."""
        if x.dim() == 4:
            x = x.transpose(1, 2)
        weights = iter(self.unflatten(params).values())
        states = x.reshape(len(x), *self.shape)
        for _ in self.hidden:
            gates = functional.linear(states, next(weights), next(weights))
            states = perturb(unrolled(gates, next(weights))[0])
        return states[:, -1]


Embedding = EmbeddingNetwork | Recurrent


@dataclass(frozen=True)
class Sum(Model):
    """The head that adds the parties' embeddings and a bias (classes,), which is all of θ_0.

    With linear embeddings of `classes` numbers, (1) is then logistic regression on all features.
    """

    @property
    def layout(self) -> Layout:
        """The bias."""
        return (("dense1.bias", (self.classes,)),)

    @property
    def variant(self) -> str:
        """The name says it all."""
        return "sum"

    def init(self, seed: int) -> Tensor:
        """Return zeros: F is convex in the bias."""
        return torch.zeros(self.size)

    def trace(self, params: Tensor, x: Tensor) -> list[LayerValues]:
        """Return the one layer."""
        return [LayerValues(x, x.sum(-2) + params)]


def neuron(scale: float, smooth: torch.Generator | None) -> Neuron:
    """Return Z_l of (11b): uniform on ±sqrt(3)·c_l, so of standard deviation c_l = `scale`.

    Drawn from `smooth`; without it, or for scale 0, nothing is added.
    """
    reach = math.sqrt(3) * scale
    if smooth is None or reach == 0:
        return lambda u: u

    def perturb(u: Tensor) -> Tensor:
        return u + torch.rand(u.shape, generator=smooth).mul_(2 * reach).sub_(reach).to(u.device)

    return perturb


def embedding(
    kind: EmbeddingKind,
    shape: tuple[int, ...],
    width: int,
    *,
    hidden: tuple[int, ...] = (),
    channels: tuple[int, ...] = (10, 20),
    kernel: int = 3,
    activation: Activation = "relu",
    smoothing: float = 0.0,
) -> Embedding:
    """Return an embedding of blocks of `shape` into `width` numbers.

    `linear` ignores the layer sizes. `mlp` has dense layers `hidden`, `cnn` convolutions before
    them (square blocks), `lstm` a stack of LSTM layers of `hidden` cells. Raises ConfigError naming
    the field and the value.
    """
    if width < 1 or not 0 <= smoothing < math.inf:
        raise ConfigError(
            f"algorithm.width = {width} must be >= 1, algorithm.smoothing = {smoothing} finite "
            f"and >= 0"
        )
    if kind in ("mlp", "lstm") and not hidden:
        raise ConfigError(
            f"algorithm.hidden = () must have at least one layer in an embedding of kind {kind}"
        )
    if kind == "lstm":
        steps = shape[1:2] if len(shape) == 3 else shape[:1]
        return Recurrent(
            kind, (*steps, math.prod(shape) // steps[0]), width, hidden=hidden, smoothing=smoothing
        )
    if kind != "cnn":
        dense = hidden if kind == "mlp" else ()
        return EmbeddingNetwork(
            kind, shape, width, hidden=dense, activation=activation, smoothing=smoothing
        )
    like = build("cnn", shape, max(2, width), channels=channels, kernel=kernel)
    assert isinstance(like, Layered)
    return EmbeddingNetwork(
        kind,
        shape,
        width,
        channels=channels,
        kernel=kernel,
        padding=like.padding,
        hidden=hidden,
        activation=activation,
        smoothing=smoothing,
    )


def of_columns(affine: Affine, columns: int, width: int) -> ColumnsEmbedding:
    """Return the embedding of rows of len(gains) places into `width` numbers, and nothing learnt.

    Raises ConfigError where the row is wider.
    """
    places = len(affine[0])
    if places > width:
        raise ConfigError(
            f"algorithm.width = {width}: a party's columns take {places} places; write that or more"
        )
    return ColumnsEmbedding("columns", (places,), width, affine=affine, columns=columns)


def head(
    combine: Combine, parties: int, width: int, classes: int, hidden: tuple[int, ...] = ()
) -> Model:
    """Return the model θ_0 of (parties, width) embeddings: their sum, or dense layers on them all.

    Raises ConfigError naming the field and the value.
    """
    if combine == "concat":
        return Layered("head", (parties, width), classes, hidden=hidden)
    if width != classes or hidden:
        raise ConfigError(
            f"algorithm.width = {width} must be the {classes} classes where embeddings are added up"
        )
    return Sum("sum", (parties, width), classes)
