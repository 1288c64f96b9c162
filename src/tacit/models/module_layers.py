"""The layers of a user's module, each at work, where its code shows all of them.

`torch.fx` runs a module's code once with stand-ins for numbers. If every step is then one that is
known to look at one example at a time, and every trained parameter is the weight or the bias of a
known layer that is used once, one backward pass gives every example's own gradient
(`models.vectors`). No such step raises because of an example's numbers: a word that an embedding
has no row for gives nan. Anything else (an attention, a recurrent cell, a tied weight) is no error:
its operations are recorded instead (`models.recorded`), which takes longer.

    >>> from torch import nn
    >>> seen = seen_through(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), (4,))
    >>> seen.layers
    ('0', '2')
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.model_contract import LayerValues, Window

# Of an example's own numbers only, whatever their arguments.
_POINTWISE: frozenset[object] = frozenset(
    {
        *(torch.relu, torch.tanh, torch.sigmoid, torch.abs, torch.exp, operator.neg),
        *(functional.relu, functional.tanh, functional.sigmoid, functional.gelu, functional.silu),
        *(functional.elu, functional.leaky_relu, functional.softplus, functional.hardtanh),
        *(functional.max_pool2d, functional.avg_pool2d, functional.adaptive_avg_pool2d),
        *("relu", "tanh", "sigmoid", "abs", "exp", "contiguous", "long", "float"),
    }
)
# Of two values: at the same place, if they have as many dimensions.
_PAIRED = frozenset(
    {
        *(operator.add, operator.sub, operator.mul, operator.truediv),
        *(torch.add, torch.sub, torch.mul, torch.div, "add", "sub", "mul", "div"),
    }
)
# Of these dimensions, which must not be the first.
_REDUCED = frozenset({torch.mean, torch.sum, torch.flatten, "mean", "sum", "flatten"})
_RESHAPED = frozenset({"view", "reshape"})  # what their first dimension becomes is looked at
_PLAIN = (
    *(nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus),
    *(nn.Identity, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Hardtanh),
)
# What a user's code may raise, of examples as of stand-ins for numbers.
RAISED = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(ImportError, OSError, RuntimeError, TypeError, ValueError),
    SystemExit,
)
_BATCHES = 3, 5  # sizes that the code is tried with


# Layers that look across examples, keep statistics or draw at random, and what to use instead.
_REFUSED: tuple[tuple[type, str], ...] = (
    (nn.modules.batchnorm._BatchNorm, "GroupNorm or LayerNorm, which look at one example"),
    (nn.modules.dropout._DropoutNd, "no dropout: the noise of the mechanism regularises"),
    (nn.modules.lazy.LazyModuleMixin, "the layer with its sizes given"),
    (nn.modules.instancenorm._InstanceNorm, "GroupNorm with as many groups as channels"),
)


@dataclass(frozen=True, eq=False)
class SeenModule:
    """A module whose code shows its layers. layers: their names, in the order of definition."""

    graph: fx.GraphModule
    layers: tuple[str, ...]

    def run(self, state: Mapping[str, Tensor], x: Tensor) -> tuple[list[LayerValues], Tensor]:
        """Return every layer at work with the parameters `state`, and the scores, of a batch x."""
        at_work = _AtWork(self.graph, state)
        scores: Tensor = at_work.run(x)
        return [at_work.layers[name] for name in self.layers], scores


def seen_through(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> SeenModule | None:
    """Return the module's layers for examples of `shape`; None where its code hides some."""
    try:
        graph = fx.symbolic_trace(module)
    except RAISED:
        return None
    if not _one_by_one(graph) or not _parameters_known(module, graph):
        return None
    batches = (torch.zeros(batch, *shape, dtype=dtype) for batch in _BATCHES)
    if not all(_keeps_examples_apart(graph, batch) for batch in batches):
        return None
    return SeenModule(graph, tuple(name for name, _ in _layers(module)))


def _layers(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the modules with trained parameters of their own."""
    return [
        (name, layer)
        for name, layer in module.named_modules()
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
    ]


def _one_by_one(graph: fx.GraphModule) -> bool:
    """Check whether every step is known to look at one example at a time."""
    modules = dict(graph.named_modules())
    return sum(node.op == "placeholder" for node in graph.graph.nodes) == 1 and all(
        _step_known(node, modules) for node in graph.graph.nodes
    )


def _step_known(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return len(node.args) == 1 and not node.kwargs and _layer_known(modules[str(node.target)])
    if node.op in ("call_function", "call_method"):
        return not node.kwargs.get("inplace") and _call_known(node)
    return node.op in ("placeholder", "output")


def _call_known(node: fx.Node) -> bool:
    target = node.target
    arguments = node.args[1:]
    if target in _POINTWISE or target in _PAIRED:
        # A rounding mode divides whole numbers as such, and by 0 that raises.
        plain = not {"out", "rounding_mode"} & node.kwargs.keys()
        return plain and not any(argument is True for argument in arguments)
    if target in _REDUCED:
        return _spares_the_first(arguments, node.kwargs)
    if target in _RESHAPED:
        return True
    return _count_of_examples(node)


def _count_of_examples(node: fx.Node) -> bool:
    """Check whether a step is one of x.size(0), x.shape, and [0] of that."""
    if node.target is operator.getitem:
        of = node.args[0]
        first = isinstance(node.args[1], int) and node.args[1] == 0
        return first and isinstance(of, fx.Node) and of.target is getattr
    if node.target is getattr:
        return node.args[1] == "shape"
    return node.target == "size" and node.args[1:] == (0,)


def _spares_the_first(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    """Check whether the dimensions that are named are positive numbers, so not the first."""
    if arguments:
        stated = arguments[0]
    else:
        stated = options.get("dim", options.get("start_dim"))
    if isinstance(stated, tuple | list):
        dims = stated
    else:
        dims = (stated,)
    return all(isinstance(dim, int) and dim > 0 for dim in dims)


def _layer_known(layer: nn.Module) -> bool:
    if layer._forward_hooks or layer._forward_pre_hooks or getattr(layer, "inplace", False):
        return False
    if isinstance(layer, nn.Flatten):
        return layer.start_dim == 1
    return type(layer) in _PLAIN or (type(layer) in _RULES and _RULES[type(layer)](layer))


def _square(layer: Any) -> bool:
    """Check whether a convolution is one that `Window` describes."""
    same = (layer.kernel_size, layer.stride, layer.padding)
    return (
        all(isinstance(size, tuple) and len(set(size)) == 1 for size in same)
        and layer.dilation == (1, 1)
        and layer.padding_mode == "zeros"
    )


def _plain_words(layer: Any) -> bool:
    """Check whether an embedding is one row a word, and no more."""
    return (
        layer.padding_idx is None
        and layer.max_norm is None
        and not (layer.scale_grad_by_freq or layer.sparse)
    )


# The layers whose weights' gradients are known from what goes in and what comes back.
_RULES: dict[type[nn.Module], Callable[[Any], bool]] = {
    nn.Linear: lambda _: True,
    nn.Conv2d: _square,
    nn.Embedding: _plain_words,
    nn.GroupNorm: lambda layer: layer.affine,
    nn.LayerNorm: lambda layer: layer.elementwise_affine and len(layer.normalized_shape) == 1,
}


def _parameters_known(module: nn.Module, graph: fx.GraphModule) -> bool:
    """Check whether every trained parameter is weight or bias of a layer that is used once.

    Where a layer has both, both are trained.
    """
    used = [str(node.target) for node in graph.graph.nodes if node.op == "call_module"]
    every = list(module.named_parameters(remove_duplicate=False))
    tied = len(every) > len({id(parameter) for _, parameter in every})
    return not tied and all(
        type(layer) in _RULES
        and used.count(name) == 1
        and all(parameter.requires_grad for parameter in layer.parameters())
        for name, layer in _layers(module)
    )


def _keeps_examples_apart(graph: fx.GraphModule, batch: Tensor) -> bool:
    """Check whether the first dimension is always the examples', and pairs have like shapes."""
    shapes = _Shapes(graph)
    try:
        shapes.run(batch)
    except RAISED:
        return False
    return all(
        value[0] == len(batch) and all(_alike(value, other) for other in others)
        for value, others in shapes.steps
    )


def _alike(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(shape) == len(other) and shape[0] == other[0]


class _Shapes(fx.Interpreter):
    """Runs the code, and keeps the shape of each step's result, and of what a pair is made of."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.steps: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = []

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            if n.target in _PAIRED:
                pair = n.args
            else:
                pair = ()
            values = [self.env[node] for node in pair if isinstance(node, fx.Node)]
            shapes = [tuple(value.shape) for value in values if isinstance(value, Tensor)]
            # A whole batch's number (a size) in a sum is no example's, and is not looked through.
            odd = len(values) > len(shapes)
            self.steps.append(((0,) if odd or not result.dim() else tuple(result.shape), shapes))
        return result


class _AtWork(fx.Interpreter):
    """Runs the code with given parameters, and keeps what goes into each layer and comes out."""

    def __init__(self, graph: fx.GraphModule, state: Mapping[str, Tensor]) -> None:
        super().__init__(graph)
        self.state = state
        self.layers = dict[str, LayerValues]()

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        layer: Any = self.fetch_attr(target)
        if type(layer) not in _RULES:
            return layer(*args)
        parameters = {name: self.state[f"{target}.{name}"] for name, _ in layer.named_parameters()}
        if type(layer) is nn.Embedding:
            x = args[0].clamp(0, len(layer.weight) - 1)
        else:
            x = args[0]
        output = functional_call(layer, parameters, (x,))
        if x is not args[0]:  # a word that is not there gives nan, as it must not raise
            output = torch.where((x == args[0]).unsqueeze(-1), output, torch.nan)
        self.layers[target] = _layer(layer, x, output)
        return output


def _layer(layer: Any, x: Tensor, output: Tensor) -> LayerValues:
    """Return a layer at work, as `models.vectors` takes it."""
    if isinstance(layer, nn.Conv2d):
        window = Window(layer.kernel_size[0], int(layer.padding[0]), layer.stride[0], layer.groups)
        return LayerValues(x, output, window, layer.bias is not None)
    if isinstance(layer, nn.GroupNorm):
        plain = functional.group_norm(x.detach(), layer.num_groups, eps=layer.eps)
        return LayerValues(plain.flatten(2).transpose(1, 2), output, scale="channels")
    if isinstance(layer, nn.LayerNorm):
        plain = functional.layer_norm(x.detach(), layer.normalized_shape, eps=layer.eps)
        return LayerValues(plain, output, bias=layer.bias is not None, scale="features")
    return LayerValues(x, output, bias=getattr(layer, "bias", None) is not None)


def check_layers(entry: str, module: nn.Module) -> None:
    """Raise ConfigError for a layer that cannot be trained privately, with what to use instead."""
    for name, layer in module.named_modules():
        for kind, instead in _REFUSED:
            if isinstance(layer, kind) and not _harmless(layer):
                raise ConfigError(
                    f"model.entry={entry}: layer {name or '(the module)'} is "
                    f"{type(layer).__name__}; use {instead}"
                )


def _harmless(layer: object) -> bool:
    """Check whether a layer is a dropout that never drops, or an instance norm without state."""
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm):
        return not layer.track_running_stats
    return isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p == 0
