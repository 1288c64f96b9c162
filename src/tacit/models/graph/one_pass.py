"""Graphs whose rows' gradients one backward pass finds, for rows that are computed together.

Every trained weight must be read once, by a layer whose gradient follows from its input and from
what the loss makes of its output (`models.vectors`). So each such output gets a tensor of zeros
added, and the loss is derived by these.

Shapes: B rows; a layer's output as `LayerValues` has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.graphs.graph_file import Of
from tacit.graphs.interpreter import GraphStep, Program, sources
from tacit.models.model_contract import LayerValues, Layout, Window

_Form = Literal["flat", "row", "whole"]
_Values = Callable[[Tensor, Tensor], LayerValues]  # (its input, its output) of a batch


@dataclass(frozen=True, slots=True)
class _Layer:
    """A step that reads trained weights. read: the value that its gradient needs.

    weights: its weight, and its bias if it has one. of: makes of that value and its output what
    `models.vectors` takes. form: of its output there: (1, …) "whole", (…) as a "row", or "flat",
    which is (width,) or (places, width). numbers: what its output must have, or 0.
    """

    step: GraphStep
    read: str
    weights: tuple[str, ...]
    of: _Values
    form: _Form
    numbers: int = 0


@dataclass(frozen=True, slots=True)
class OnePass:
    """The layers of a graph, in the vector's order. shapes: of their outputs for one row."""

    network: Program
    layers: tuple[_Layer, ...]
    shapes: tuple[tuple[int, ...], ...]

    def at_work(self, weights: Mapping[str, Tensor], x: Tensor) -> tuple[list[LayerValues], Tensor]:
        """Return every layer at work, and the scores, of a batch x (B, *shape)."""
        names = [layer.step.name for layer in self.layers]
        run = self.network.opened(weights, names, [layer.read for layer in self.layers])
        added = [
            torch.zeros((len(x), *shape), device=x.device, requires_grad=True)
            for shape in self.shapes
        ]
        with sdpa_kernel(SDPBackend.MATH):  # which torch can map over rows
            scores, inputs = vmap(lambda row, *more: run(row.unsqueeze(0), *more))(x, *added)
        layers = [
            layer.of(value.detach(), output)
            for layer, value, output in zip(self.layers, inputs, added, strict=True)
        ]
        return layers, scores.squeeze(1)


def one_pass(
    network: Program, layout: Layout, weights: Mapping[str, Tensor], x: Tensor
) -> OnePass | None:
    """Return the layers of a graph; None: one backward pass does not find its gradients.

    layout: of the trained weights. x: a public row, (1, *shape).
    """
    trained = {name: place for place, (name, _) in enumerate(layout)}
    layers: list[_Layer] = []
    for step in network.steps:
        if read := [name for name in sources(step.arguments) if name in trained]:
            layer = _layer(step, read, dict(layout))
            if layer is None:
                return None
            layers.append(layer)
    layers.sort(key=lambda layer: trained[layer.weights[0]])
    if [name for layer in layers for name in layer.weights] != list(trained):
        return None
    names = [layer.step.name for layer in layers]
    _, values = network.opened(weights, [], names)(x)
    shapes = tuple(_shape(layer, value) for layer, value in zip(layers, values, strict=True))
    for layer, shape in zip(layers, shapes, strict=True):
        if layer.numbers not in (0, math.prod(shape)):
            return None
    return OnePass(network, tuple(layers), shapes)


def _shape(layer: _Layer, output: Tensor) -> tuple[int, ...]:
    """Return an output's shape for one row: as it is, without its batch, or by places."""
    if layer.form == "row":
        return tuple(output.shape[1:])
    if layer.form == "whole":
        return tuple(output.shape)
    width = output.shape[-1]
    places = output.numel() // max(1, width)
    return (width,) if places == 1 else (places, width)


def _layer(step: GraphStep, read: list[str], sizes: Mapping[str, Any]) -> _Layer | None:
    """Return a step as a layer that reads these trained weights; None: it is no known one."""
    name = "" if step.call is None else step.call._schema.name.removeprefix("aten::")
    stated = step.arguments
    if kind := _KINDS.get(name):
        source, values, form = kind
        weights = tuple(
            stated[key].of for key in ("weight", "bias") if isinstance(stated.get(key), Of)
        )
        if weights != tuple(read) or not isinstance(stated.get(source), Of):
            return None
        if (of := values(stated, sizes)) is None:
            return None
        return _Layer(step, stated[source].of, weights, of, form)
    if name == "add" and len(read) == 1 and "alpha" not in stated:
        numbers = math.prod(sizes[read[0]])
        return _Layer(step, step.name, tuple(read), _shifted, "whole", numbers)
    return None


def _shifted(_: Tensor, output: Tensor) -> LayerValues:
    return LayerValues(output, output, scale="shift")


def _linear(stated: Mapping[str, Any], _: Mapping[str, Any]) -> _Values | None:
    bias = stated.get("bias") is not None

    def of(x: Tensor, output: Tensor) -> LayerValues:
        return LayerValues(x.reshape(*output.shape[:-1], x.shape[-1]), output, bias=bias)

    return of


def _embedding(stated: Mapping[str, Any], _: Mapping[str, Any]) -> _Values | None:
    if stated.keys() - {"weight", "indices"}:
        return None

    def of(words: Tensor, output: Tensor) -> LayerValues:
        return LayerValues(words.reshape(len(words), -1), output, bias=False)

    return of


def _convolution(stated: Mapping[str, Any], sizes: Mapping[str, Any]) -> _Values | None:
    kernel = sizes[stated["weight"].of][2:]
    stride, padding = stated.get("stride", [1, 1]), stated.get("padding", [0, 0])
    squares = [set(kernel), set(stride), set(padding)]
    if any(len(each) != 1 for each in squares) or set(stated.get("dilation", [1])) != {1}:
        return None
    window = Window(kernel[0], padding[0], stride[0], stated.get("groups", 1))
    bias = stated.get("bias") is not None

    def of(x: Tensor, output: Tensor) -> LayerValues:
        return LayerValues(x.squeeze(1), output, window, bias)

    return of


def _layer_norm(stated: Mapping[str, Any], _: Mapping[str, Any]) -> _Values | None:
    width, eps = stated["normalized_shape"], stated.get("eps", 1e-5)
    bias = stated.get("bias") is not None
    if len(width) != 1:
        return None

    def of(x: Tensor, output: Tensor) -> LayerValues:
        plain = functional.layer_norm(x, width, eps=eps)
        return LayerValues(plain, output, bias=bias, scale="features")

    return of


def _group_norm(stated: Mapping[str, Any], _: Mapping[str, Any]) -> _Values | None:
    groups, eps = stated["num_groups"], stated.get("eps", 1e-5)

    def of(x: Tensor, output: Tensor) -> LayerValues:
        plain = functional.group_norm(x.squeeze(1), groups, eps=eps)
        return LayerValues(plain.flatten(2).transpose(1, 2), output, scale="channels")

    return of


# By an operation: the argument whose value its gradient needs, what makes `LayerValues` of it, and
# the form of its output there.
_KINDS: Mapping[str, tuple[str, Callable[..., _Values | None], _Form]] = {
    "linear": ("input", _linear, "flat"),
    "embedding": ("indices", _embedding, "flat"),
    "conv2d": ("input", _convolution, "row"),
    "layer_norm": ("input", _layer_norm, "whole"),
    "group_norm": ("input", _group_norm, "row"),
}
