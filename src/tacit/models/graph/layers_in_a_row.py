"""Graphs that are layers in a row, as `zoo.layered` has them: these have compiled loops.

A graph is read for what it computes, and not for the code that it came from. Convolutions,
activations, pooling and dense layers follow one another. The loss is the cross-entropy of their
scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

from tacit.graphs.graph_file import Node, Of
from tacit.graphs.node_arguments import bound
from tacit.graphs.operations import OPERATIONS
from tacit.models.graph.graph_model import GraphModel
from tacit.models.losses import cross_entropy
from tacit.models.zoo.layered import Activation, Layered

_CONVOLUTION, _DENSE, _POOL, _FLAT = "convolution", "dense", "pool", "flat"
_ACTIVATIONS = ("relu", "tanh")
_KINDS = {
    "conv2d.default": _CONVOLUTION,
    "linear.default": _DENSE,
    "max_pool2d.default": _POOL,
    "relu.default": "relu",
    "tanh.default": "tanh",
    "flatten.using_ints": _FLAT,
    "reshape.default": _FLAT,
    "clone.default": "same",
    "alias.default": "same",
}
# Of each kind the arguments that it may have, and their only values.
_CONSTANTS: dict[str, dict[str, Any]] = {
    _CONVOLUTION: {"stride": [1, 1], "dilation": [1, 1], "groups": 1},
    _POOL: {
        "kernel_size": [2, 2],
        "stride": [2, 2],
        "padding": [0, 0],
        "dilation": [1, 1],
        "ceil_mode": False,
    },
}


class _Other(Exception):  # noqa: N818  (a verdict on a graph)
    """The graph is something else."""


def layers_in_a_row(model: GraphModel) -> Layered | None:
    """Return the network of `zoo.layered` with the same vector and gradients; None: there is none.

    Only rounding may differ, and the gradient where two numbers of a pool are equal.
    """
    if model.example_loss is not cross_entropy or model.checked.loss or model.objective is not None:
        return None
    if model.labels != model.classes or model.classes < 2 or model.frozen:
        return None
    try:
        network = _network(model, list(_steps(model.checked.graph.nodes)))
    except _Other:
        return None
    if [shape for _, shape in network.layout] != [shape for _, shape in model.layout]:
        return None
    return network


def _network(model: GraphModel, steps: list[tuple[str, dict[str, Any]]]) -> Layered:
    read = [name.of for _, stated in steps for name in _weights(stated)]
    if read != [name for name, _ in model.layout]:
        raise _Other
    kinds = [kind for kind, _ in steps]
    convolutions = [stated for kind, stated in steps if kind == _CONVOLUTION]
    if convolutions and (len(model.shape) != 3 or model.shape[1] != model.shape[2]):
        raise _Other
    dense = kinds.count(_DENSE)
    activation, pool_every = _pattern(kinds)
    sizes = dict(model.layout)
    widths = [sizes[stated["weight"].of] for stated in convolutions]
    paddings = {tuple(stated.get("padding", [0, 0])) for stated in convolutions}
    kernels = {shape[2:] for shape in widths}
    (padding, other), *more = paddings or {(0, 0)}
    (kernel, height), *others = kernels or {(1, 1)}
    if more or others or padding != other or kernel != height:
        raise _Other
    hidden = [sizes[stated["weight"].of][0] for kind, stated in steps if kind == _DENSE]
    name = "cnn" if convolutions else ("mlp" if dense > 1 else "logistic")
    return Layered(
        name,
        model.shape,
        model.classes,
        model.regularization,
        tuple(shape[0] for shape in widths),
        kernel,
        padding,
        tuple(hidden[:-1]),
        activation,
        "none",
        pool_every,
    )


def _steps(nodes: tuple[Node, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each node's kind and arguments, if each takes what the one before it gives."""
    last = "$x"
    for node in nodes:
        kind = _KINDS.get(node.op)
        if kind is None:
            raise _Other
        stated = bound(node, OPERATIONS[node.op])
        source = stated.pop("input", None) or stated.pop("self", None)
        if source != Of(of=last):
            raise _Other
        fixed = _CONSTANTS.get(kind, {})
        if any(stated[key] != value for key, value in fixed.items() if key in stated):
            raise _Other
        last = node.name
        if kind == _FLAT and stated.get("shape", [1, 0])[0] not in (1, -1):
            raise _Other
        if kind != "same":
            yield kind, stated


def _weights(stated: dict[str, Any]) -> list[Of]:
    """Return the weight and the bias of a layer that has both."""
    if "weight" not in stated:
        return []
    if not isinstance(stated.get("bias"), Of):
        raise _Other
    return [stated["weight"], stated["bias"]]


def _pattern(kinds: list[str]) -> tuple[Activation, int]:
    """Return the one activation, and after how many convolutions a pool comes."""
    used = {kind for kind in kinds if kind in _ACTIVATIONS}
    if len(used) > 1:
        raise _Other
    activation = cast(Literal["relu", "tanh"], used.pop() if used else "relu")
    count = kinds.count(_CONVOLUTION)
    if not _flattened(kinds):
        raise _Other
    before = [kind for kind in kinds if kind != _FLAT]
    for every in range(1, count + 2):
        for pooled in ([_POOL, activation], [activation, _POOL]):
            if before == _expected(count, kinds.count(_DENSE), activation, every, pooled):
                return activation, every
    raise _Other


def _expected(
    convolutions: int, dense: int, activation: str, every: int, pooled: list[str]
) -> list[str]:
    kinds: list[str] = []
    for number in range(1, convolutions + 1):
        kinds += [_CONVOLUTION, *(pooled if number % every == 0 else [activation])]
    return kinds + [_DENSE, activation] * (dense - 1) + [_DENSE] * min(1, dense)


def _flattened(kinds: list[str]) -> bool:
    """Check that numbers are made a list once, before the first dense layer, if at all."""
    places = [place for place, kind in enumerate(kinds) if kind == _FLAT]
    return all(kinds[place + 1] in (_FLAT, _DENSE) for place in places) and (
        not places or kinds[: places[-1]].count(_DENSE) == 0
    )
