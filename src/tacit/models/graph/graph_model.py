"""A checked graph as a model of one flat vector.

The vector (d,) is the graph's trained weights, in their order. All other weights are public and
stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.errors import ConfigError
from tacit.graphs.graph_check import CheckedGraph, refusing, renamed
from tacit.graphs.interpreter import Program
from tacit.models.graph.one_pass import OnePass, one_pass
from tacit.models.losses import Loss, cross_entropy
from tacit.models.model_contract import LayerValues, Layout
from tacit.models.own_network import OwnNetwork

# Multiply-adds of a row for each of its operations, measured by `tacit_lab.bench`.
_SMALL = 200_000
_SHORT = 1 << 17
# Computes the gradient of one row, x (1, *shape) and y (), by each trained weight.
RowGradient = Callable[[Tensor, Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True, eq=False)
class GraphModel(OwnNetwork):
    """A graph, its weights' first values and its loss. Compared by identity.

    digest: SHA-256 of the graph's text, in hexadecimal. classes: numbers that it gives for an
    example, or 0 where only its own loss knows them. labels: classes of the target, or 0 for a
    number. example_loss: of one example, where the graph has none of its own; None: the
    objective's.
    """

    digest: str = ""
    checked: CheckedGraph = field(kw_only=True, compare=False, repr=False)
    values: Mapping[str, Tensor] = field(kw_only=True, compare=False, repr=False)
    example_loss: Loss | None = field(default=cross_entropy, compare=False, repr=False)
    labels: int = 0

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @cached_property
    def layout(self) -> Layout:
        """(name, shape) of every trained weight, in the graph's order."""
        return tuple(
            (weight.name, weight.shape) for weight in self.checked.graph.weights if weight.trained
        )

    @cached_property
    def frozen(self) -> dict[str, Tensor]:
        """The weights that are not trained, by name; public."""
        return {
            weight.name: self.values[weight.name]
            for weight in self.checked.graph.weights
            if not weight.trained
        }

    @property
    def variant(self) -> str:
        """The graph's digest: two models whose vectors are interchangeable have the same."""
        return f"graph {self.digest}"

    @property
    def maps(self) -> bool:
        """Whether torch can map it over the rows of a batch."""
        return self.checked.network.maps

    @property
    def small(self) -> bool:
        """Whether its rows are quicker together: each has little to compute, and a short gradient.

        Alone, a row pays for calling each operation; together, for gradients that no cache holds.
        """
        few = self.checked.multiply_adds < _SMALL * len(self.checked.graph.nodes)
        return few and self.size < _SHORT

    @property
    def traced(self) -> bool:
        """Return False: its rows go through it one by one."""
        return False

    def trace(self, params: Tensor, x: Tensor) -> list[LayerValues]:
        """Return only the graph as a whole: its input and its scores."""
        return [LayerValues(x, self.logits(params, x))]

    @cached_property
    def one_pass(self) -> OnePass | None:
        """Its layers, if one backward pass finds the gradients of a whole batch."""
        if not self.maps:
            return None
        x, _ = self.random_batch(1, torch.Generator().manual_seed(0))
        with torch.no_grad():
            return one_pass(self.checked.network, self.layout, self.values, x)

    def at_work(self, params: Tensor, x: Tensor) -> tuple[list[LayerValues], Tensor]:
        """Return every layer at work, and the scores, of a batch x; only if `one_pass`."""
        assert self.one_pass is not None
        weights = self._weights(self.unflatten(params), params.device)
        return self.one_pass.at_work(weights, x)

    def init(self, seed: int) -> Tensor:
        """Return the first values (d,) that stand beside the graph; the seed changes nothing."""
        return torch.cat([self.values[name].reshape(-1) for name, _ in self.layout])

    def state(self, params: Tensor) -> dict[str, Tensor]:
        """Return all weights by name, the trained ones of `params`."""
        weights = self.unflatten(params) | self.frozen
        return {name: value.detach().clone() for name, value in weights.items()}

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        """Return the graph's output of a batch x (B, *shape), or of one example (*shape)."""
        weights = self._weights(self.unflatten(params), params.device)
        network = self.checked.network
        if x.dim() == len(self.shape):
            return network.run(weights, x.unsqueeze(0)).squeeze(0)
        return run_batch(network, weights, x)

    def row_gradient(self, params: Tensor) -> RowGradient:
        """Return the function that computes one row's gradient at `params` (d,), by autograd.

        It computes one row alone, at a fixed shape. Its result is a function of the row's numbers
        and `params`, if all rows come at the same address. The penalty's gradient is in it.
        """
        leaves, weights = self._leaves(params)
        run = self.checked.network.bound(weights)

        def compute(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            with torch.enable_grad():
                loss = self._loss_of_one(run(x), y)
            parts = torch.autograd.grad(loss, leaves)
            if self.regularization:
                pairs = zip(parts, leaves, strict=True)
                return tuple(
                    torch.add(part, leaf.detach(), alpha=self.regularization)
                    for part, leaf in pairs
                )
            return parts

        return compute

    def row_parts(self, params: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of one row by trained weights; None: the loss does not read it."""
        leaves, weights = self._leaves(params)
        with torch.enable_grad():
            loss = self._loss_of_one(self.checked.network.run(weights, x), y)
        if not loss.requires_grad:
            return (None,) * len(leaves)
        return torch.autograd.grad(loss, leaves, allow_unused=True)

    def _loss_of_one(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the loss () of the output (1, …) of one example, without the penalty."""
        if self.checked.loss is not None:
            return self.data_loss(output.squeeze(0), y)
        return self.data_loss(output, y.unsqueeze(0)).squeeze(0)  # a batch takes fewer operations

    def _leaves(self, params: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Return the trained weights as leaves of autograd, and all weights by name."""
        trained = {
            name: part.detach().clone().requires_grad_()
            for name, part in self.unflatten(params).items()
        }
        return tuple(trained.values()), self._weights(trained, params.device)

    def data_loss(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the loss of one example's output, (), or of each of a batch, (B,)."""
        own = self.checked.loss
        if own is None:
            return super().data_loss(scores, y)
        decoded = y if self.objective is None else self.objective.decoded(y)
        if self.is_one(y):
            return own.run({}, scores, decoded)
        return vmap(lambda output, target: own.run({}, output, target))(scores, decoded)

    @property
    def squared_error(self) -> bool:
        """Whether its loss is `mse`, and not the graph's own."""
        return self.checked.loss is None and super().squared_error

    @property
    def trains_objective(self) -> bool:
        """Whether it has an objective, and its loss is the objective's."""
        return self.checked.loss is None and super().trains_objective

    def random_batch(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `count` random examples, of no data: inside the declared values."""
        x = self.random_inputs(count, generator, self.checked.graph.example.below)
        return x, self.random_targets(count, generator)

    def _weights(self, trained: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        return {**trained, **{name: value.to(device) for name, value in self.frozen.items()}}


def check_gradients(where: str, model: GraphModel) -> None:
    """Check that every trained weight can reach the loss: whether it does is the graph's matter.

    A gradient of zeros, as at a start of zeros, is no error. Raises ConfigError, which `where`
    begins.
    """
    if not model.size:
        raise ConfigError(f"{where}: has no parameter to train (model.trainable)")
    x, y = model.random_batch(1, torch.Generator().manual_seed(1))
    with renamed(where), refusing():
        parts = model.row_parts(model.init(0), x, y[0])
    for (name, _), part in zip(model.layout, parts, strict=True):
        if part is None:
            raise ConfigError(without_gradient(where, name))


def without_gradient(where: str, name: str) -> str:
    """Return what is said of a trained weight that the loss does not follow."""
    return (
        f"{where}: parameter {name} gets no gradient (detach, argmax or not used); freeze it with "
        "model.trainable"
    )


def write_parts(parts: Sequence[Tensor], out: Tensor) -> None:
    """Write a gradient's parts into `out` (d,), one behind the other."""
    for part, place in zip(
        parts, out.split_with_sizes([part.numel() for part in parts]), strict=True
    ):
        place.view(part.shape).copy_(part)


def run_batch(network: Program, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs of a batch x (B, *shape), each row by itself."""

    run = network.bound(weights)

    def alone(row: Tensor) -> Tensor:
        return run(row.unsqueeze(0)).squeeze(0)

    if not network.maps or not len(x):
        return torch.stack([alone(row) for row in x])
    with sdpa_kernel(SDPBackend.MATH):  # which torch can map over examples
        return vmap(alone)(x)
