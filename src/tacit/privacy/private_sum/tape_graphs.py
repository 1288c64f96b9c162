"""Graphs of layers that a tape has: it is read for what it computes, not for its code.

Convolutions, dense layers, group and layer normalization, ReLU, tanh, GELU, sums of two branches
and means over places may stand in any order. Every trained weight is read once. The loss is the
cross-entropy of one score for each class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.graphs.graph_file import Of
from tacit.graphs.interpreter import sources
from tacit.graphs.node_arguments import bound
from tacit.graphs.operations import OPERATIONS
from tacit.kernels.tape_layout import BENT, PLAIN, RISING, ROUNDED
from tacit.models.graph.graph_model import GraphModel
from tacit.models.losses import cross_entropy
from tacit.privacy.private_sum.tape_plan import Tape, TapeValue, Unfit, indices_of

_EPSILON = 1e-5  # of every normalization
_Stated = dict[str, Any]


def laid_graph(model: GraphModel) -> Tape | None:
    """Return the tape of a graph with a loss that it has; None: there is none."""
    if model.example_loss is not cross_entropy or model.checked.loss or model.objective is not None:
        return None
    if model.labels != model.classes or model.classes < 2 or model.frozen:
        return None
    if model.checked.graph.example.below is not None:
        return None
    try:
        return _Reader(model).read()
    except Unfit:
        return None


class _Reader:
    """Lays a graph's nodes, one after another."""

    def __init__(self, model: GraphModel) -> None:
        self.model = model
        self.tape = Tape()
        shapes = [shape for _, shape in model.layout]
        names = (name for name, _ in model.layout)
        self.weights = dict(zip(names, indices_of(shapes), strict=True))
        if any(node.op not in _LAYERS for node in model.checked.graph.nodes):
            raise Unfit
        self.stated = {
            node.name: (node.op, bound(node, OPERATIONS[node.op]))
            for node in model.checked.graph.nodes
        }
        self.reads = Counter(name for _, stated in self.stated.values() for name in sources(stated))
        self.values = {"$x": self._input()}

    def read(self) -> Tape:
        """Return the tape. Raises Unfit."""
        if any(self.reads[name] != 1 for name in self.weights):
            raise Unfit
        last = self.values["$x"]
        for name, (op, stated) in self.stated.items():
            last = self.values[name] = _LAYERS[op](self, stated)
        if last.places != 1 or last.channels != self.model.classes or last.base is not None:
            raise Unfit
        if next(reversed(self.stated)) != self.model.checked.graph.output:
            raise Unfit
        return self.tape

    def _input(self) -> TapeValue:
        shape = self.model.shape
        if len(shape) == 1:
            return self.tape.places(1, shape[0])
        if len(shape) == 3 and shape[1] == shape[2]:
            return self.tape.picture(shape)
        raise Unfit

    def value(self, stated: _Stated, key: str) -> TapeValue:
        """Return the value that an argument names."""
        argument = stated.get(key)
        if not isinstance(argument, Of) or argument.of not in self.values:
            raise Unfit
        return self.values[argument.of]

    def weight(self, stated: _Stated, key: str) -> NDArray[np.int64] | None:
        """Return the places of a trained weight; None: the argument is not there."""
        argument = stated.get(key)
        if argument is None:
            return None
        if not isinstance(argument, Of) or argument.of not in self.weights:
            raise Unfit
        return self.weights[argument.of]

    def trained(self, stated: _Stated, key: str) -> NDArray[np.int64]:
        """Return the places of a trained weight, which must be there."""
        weight = self.weight(stated, key)
        if weight is None:
            raise Unfit
        return weight


def _convolution(reader: _Reader, stated: _Stated) -> TapeValue:
    x, weight = reader.value(stated, "input"), reader.trained(stated, "weight")
    stride, pad = stated.get("stride", [1, 1]), stated.get("padding", [0, 0])
    squares = (list(weight.shape[2:]), stride, pad, stated.get("dilation", [1, 1]))
    if any(len(set(each)) != 1 for each in squares) or set(squares[-1]) != {1} or not x.side:
        raise Unfit
    if pad[0] >= weight.shape[2] or x.base is not None:
        raise Unfit
    bias, groups = reader.weight(stated, "bias"), stated.get("groups", 1)
    if groups == 1:
        return reader.tape.convolve(x, weight, bias, stride[0], pad[0])
    if groups == len(weight) == x.channels:
        return reader.tape.convolve_each(x, weight, bias, stride[0], pad[0])
    raise Unfit


def _dense(reader: _Reader, stated: _Stated) -> TapeValue:
    x, weight = reader.value(stated, "input"), reader.trained(stated, "weight")
    if x.side or weight.shape[1] != x.channels:
        raise Unfit
    return reader.tape.dense(x, weight, reader.weight(stated, "bias"))


def _group_norm(reader: _Reader, stated: _Stated) -> TapeValue:
    x = reader.value(stated, "input")
    if stated.get("eps", _EPSILON) != _EPSILON:
        raise Unfit
    weight, bias = reader.weight(stated, "weight"), reader.weight(stated, "bias")
    return reader.tape.normalize(x, stated["num_groups"], weight, bias)


def _layer_norm(reader: _Reader, stated: _Stated) -> TapeValue:
    x = reader.value(stated, "input")
    if stated.get("eps", _EPSILON) != _EPSILON or x.side:
        raise Unfit
    if list(stated["normalized_shape"]) != [x.channels]:
        raise Unfit
    weight, bias = reader.weight(stated, "weight"), reader.weight(stated, "bias")
    return reader.tape.normalize(x, 1, weight, bias, each=True)


def _rising(reader: _Reader, stated: _Stated) -> TapeValue:
    x = reader.value(stated, "self")
    if reader.reads[stated["self"].of] == 1 and reader.tape.follow(x, RISING):
        return x
    return reader.tape.activate(x, RISING)


def _activation(follows: int) -> Callable[[_Reader, _Stated], TapeValue]:
    def lay(reader: _Reader, stated: _Stated) -> TapeValue:
        if stated.get("approximate", "none") != "none":
            raise Unfit
        return reader.tape.activate(reader.value(stated, "self"), follows)

    return lay


def _sum(reader: _Reader, stated: _Stated) -> TapeValue:
    if stated.get("alpha", 1) != 1:
        raise Unfit
    x, other = reader.value(stated, "self"), reader.value(stated, "other")
    if (x.places, x.channels, x.side) != (other.places, other.channels, other.side):
        raise Unfit
    return reader.tape.add(x, other, PLAIN)


def _average(reader: _Reader, stated: _Stated) -> TapeValue:
    """Lay a mean over all places of a picture."""
    x = reader.value(stated, "self")
    places = {-2, -1} if min(stated.get("dim") or [0]) < 0 else {2, 3}
    if "output_size" in stated:
        whole = set(stated["output_size"]) == {1}
    else:
        whole = set(stated.get("dim") or ()) == places
    if not whole or not x.side:
        raise Unfit
    return reader.tape.average(x)


def _flat(reader: _Reader, stated: _Stated) -> TapeValue:
    """Lay a picture as a list of numbers, or nothing where it is one."""
    x = reader.value(stated, "self")
    numbers = x.places * x.channels
    if list(stated.get("shape", [1, numbers])) not in ([1, numbers], [1, -1], [-1, numbers]):
        raise Unfit
    if (stated.get("start_dim", 1), stated.get("end_dim", -1)) not in ((1, -1), (1, 3), (1, 1)):
        raise Unfit
    return x if x.places == 1 and not x.side else reader.tape.flatten(x)


def _same(reader: _Reader, stated: _Stated) -> TapeValue:
    return reader.value(stated, "self")


_LAYERS: Mapping[str, Callable[[_Reader, _Stated], TapeValue]] = {
    "conv2d.default": _convolution,
    "linear.default": _dense,
    "group_norm.default": _group_norm,
    "layer_norm.default": _layer_norm,
    "relu.default": _rising,
    "tanh.default": _activation(BENT),
    "gelu.default": _activation(ROUNDED),
    "add.Tensor": _sum,
    "adaptive_avg_pool2d.default": _average,
    "mean.dim": _average,
    "flatten.using_ints": _flat,
    "reshape.default": _flat,
    "clone.default": _same,
    "alias.default": _same,
}
