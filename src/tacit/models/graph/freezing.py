"""Freezing: a module of torch becomes a graph and its weights' first values.

`torch.export` calls the module once with one example, whose numbers are stand-ins, and writes down
each operation that it asks for. What comes out has no Python in it. The module's own code is run
here, and nowhere afterwards.
"""

from __future__ import annotations

import fnmatch
import operator
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import export
from torch.export.graph_signature import InputKind, OutputKind

from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.models.graph.graph_file import (
    EXAMPLE,
    OUTPUT,
    TARGET,
    Example,
    GraphFile,
    GraphWeight,
    LossPart,
    Node,
    Of,
)
from tacit.models.graph.node_arguments import DTYPES, encoded
from tacit.models.graph.operations import ITEM, OPERATIONS, instead
from tacit.models.losses import Loss

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
# Without writing, a view is a reshape that may copy; it does not depend on strides.
_SAME = {"view.default": "reshape.default", "_unsafe_view.default": "reshape.default"}
_TORCH = os.path.dirname(torch.__file__)
_NUMBER_ASKED = "asks for a number of a row (item(), if, while); use torch.where"
_ASKS = ("data-dependent", "DataDependent", "GuardOn")  # of torch.export


@dataclass(frozen=True, slots=True)
class Frozen:
    """A graph, and its weights' numbers by name."""

    graph: GraphFile
    values: Mapping[str, Tensor]


def freeze(
    entry: str,
    module: nn.Module,
    example: Example,
    *,
    trainable: Sequence[str] = ("*",),
    loss: Loss | None = None,
    target: Tensor | None = None,
    digest: Callable[[Mapping[str, Tensor]], str],
) -> Frozen:
    """Return the graph of `module` called with one example. Raises ConfigError.

    entry: names the module in messages. loss: of one example's output and `target`; None: one of
    tacit's own. digest: SHA-256, in hexadecimal, of the file that the values are written to.
    """
    x = torch.zeros((1, *example.shape), dtype=DTYPES[example.dtype])
    network = _Frozen.of(entry, module, (EXAMPLE,), (x,))
    trained = {
        name
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and any(fnmatch.fnmatchcase(name, each) for each in trainable)
    }
    weights = tuple(
        GraphWeight(
            name=name, shape=tuple(value.shape), dtype=_dtype(entry, value), trained=name in trained
        )
        for name, value in network.values.items()
    )
    graph = GraphFile(
        format=1,
        example=example,
        weights=weights,
        nodes=network.nodes,
        output=network.output,
        loss=None if loss is None else _loss(entry, loss, network.result[0], target),
        values=digest(network.values),
    )
    return Frozen(graph, network.values)


def _loss(entry: str, loss: Loss, output: Tensor, target: Tensor | None) -> LossPart:
    class OfOne(nn.Module):
        def forward(self, output: Tensor, y: Tensor) -> Tensor:
            return loss(output, y)

    assert target is not None
    frozen = _Frozen.of(entry, OfOne(), (OUTPUT, TARGET), (torch.zeros_like(output), target))
    if frozen.values:
        raise ConfigError(f"model.loss of {entry}: holds numbers of its own; make them constants")
    return LossPart(nodes=frozen.nodes, output=frozen.output)


def _dtype(entry: str, value: Tensor) -> Any:
    names = {dtype: name for name, dtype in DTYPES.items()}
    if value.dtype not in names:
        raise ConfigError(f"model.entry={entry}: has numbers of {value.dtype}; use float32")
    return names[value.dtype]


@dataclass(frozen=True, slots=True)
class _Frozen:
    """What one call of a module was. result: a stand-in of its output, without numbers."""

    nodes: tuple[Node, ...]
    output: str
    values: Mapping[str, Tensor]
    result: Tensor

    @classmethod
    def of(
        cls, entry: str, module: nn.Module, names: Sequence[str], inputs: tuple[Tensor, ...]
    ) -> _Frozen:
        program = _exported(entry, module, inputs)
        signature = program.graph_signature
        values = _values(program)
        references = _references(program, names)
        nodes: list[Node] = []
        result: Tensor | None = None
        output = ""
        for node in program.graph.nodes:
            if node.op == "call_function":
                references[node.name] = f"%{node.name}"
                nodes.append(_node(entry, node, references))
            elif node.op == "output":
                kinds = [spec.kind for spec in signature.output_specs]
                _check_outputs(entry, kinds)
                first = node.args[0][kinds.index(OutputKind.USER_OUTPUT)]
                if not isinstance(first, fx.Node):
                    raise ConfigError(f"model.entry={entry}: gives {first!r}, not a tensor")
                output, result = references[first.name], first.meta["val"]
        assert result is not None
        return cls(tuple(nodes), output, values, result)


def _exported(entry: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # An empty table: nothing is taken apart, and what writes in place no longer does.
            return export(module, inputs, strict=False).run_decompositions({})
    except FROM_OWN_CODE as error:
        raise ConfigError(f"model.entry={entry}: cannot be frozen: {_in_words(error)}") from error


def _in_words(error: BaseException) -> str:
    text = str(error)
    if any(word in f"{type(error).__name__} {text}" for word in _ASKS):
        return _NUMBER_ASKED
    return f"{type(error).__name__}: {(text.splitlines() or [''])[0][:200]}"


def _values(program: Any) -> dict[str, Tensor]:
    """Return the numbers of parameters, buffers and constants, in the order of their definition."""
    values: dict[str, Tensor] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            source = program.constants if spec.target in program.constants else program.state_dict
            values[spec.target] = source[spec.target].detach().contiguous().clone()
    return values


def _references(program: Any, names: Sequence[str]) -> dict[str, str]:
    """Return the graph's name of each input of the export, by torch's."""
    references: dict[str, str] = {}
    own = iter(names)
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            references[spec.arg.name] = next(own)
        else:
            references[spec.arg.name] = spec.target
    return references


def _check_outputs(entry: str, kinds: list[OutputKind]) -> None:
    if OutputKind.BUFFER_MUTATION in kinds:
        raise ConfigError(
            f"model.entry={entry}: writes to a buffer, as batch normalization does, which looks "
            "across examples; use GroupNorm or LayerNorm, or eval()"
        )
    if OutputKind.USER_INPUT_MUTATION in kinds:
        raise ConfigError(f"model.entry={entry}: writes to its input; work on a copy (clone)")
    if kinds.count(OutputKind.USER_OUTPUT) != 1:
        raise ConfigError(
            f"model.entry={entry}: gives {kinds.count(OutputKind.USER_OUTPUT)} tensors, not one"
        )


def _node(entry: str, node: fx.Node, references: Mapping[str, str]) -> Node:
    line = _line(node)
    if node.target is operator.getitem:
        op = ITEM
    elif isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
        op = str(node.target).removeprefix("aten.")
        op = _SAME.get(op, op)
    else:
        raise ConfigError(
            f"model.entry={entry}: {node.target} ({line}) is not an operation of torch's own"
        )
    if op not in OPERATIONS and op != ITEM:
        why = instead(op) or "is not an operation that tacit knows"
        raise ConfigError(f"model.entry={entry}: {line}: {op} {why}")
    dropped = ("device", "layout", "pin_memory")
    try:
        return Node(
            name=references[node.name],
            op=op,
            args=tuple(_argument(value, references) for value in node.args),
            kwargs={
                name: _argument(value, references)
                for name, value in node.kwargs.items()
                if name not in dropped
            },
            line=line,
        )
    except TypeError as error:
        raise ConfigError(f"model.entry={entry}: {line}: {op} has {error}") from error


def _argument(value: Any, references: Mapping[str, str]) -> Any:
    if isinstance(value, fx.Node):
        return Of(of=references[value.name])
    if isinstance(value, list | tuple):
        return tuple(_argument(item, references) for item in value)
    return encoded(value)


def _line(node: fx.Node) -> str:
    """Return where the module asked for it: the last line that is not torch's own."""
    trace = node.meta.get("stack_trace") or ""
    frames = [
        (match["file"], match["line"])
        for match in _FRAME.finditer(trace)
        if not match["file"].startswith(_TORCH)
    ]
    if not frames:
        return ""
    file, line = frames[-1]
    return f"{Path(file).name}:{line}"
