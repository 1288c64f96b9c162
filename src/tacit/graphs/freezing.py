"""Freezing: a module of torch becomes a graph and its weights' first values.

`torch.export` calls the module once with one example, whose numbers are stand-ins, and writes down
each operation that it asks for. What comes out has no Python in it. The module's own code is run
here, and nowhere afterwards.
"""

from __future__ import annotations

import hashlib
import io
import logging
import operator
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, fx, nn
from torch.export import export
from torch.export.graph_signature import InputKind, OutputKind

from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.graphs.graph_check import CheckedGraph, completed, renamed, run_on_zeros, trial_of
from tacit.graphs.graph_file import (
    EXAMPLE,
    OUTPUT,
    TARGET,
    Example,
    GraphFile,
    GraphWeight,
    LossPart,
    Node,
    Of,
    check_patterns,
    is_trainable,
)
from tacit.graphs.node_arguments import DTYPES, encoded
from tacit.graphs.operations import ITEM, OPERATIONS, instead
from tacit.graphs.unknown_words import guarded

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
# Without writing, a view is a reshape that may copy; it does not depend on strides.
_SAME = {"view.default": "reshape.default", "_unsafe_view.default": "reshape.default"}
_TO_THE_END = sys.maxsize  # of a slice
# Whose lines are not the module's own.
_NOT_OWN = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
# It looks at a type that the graph has fixed, and gives nothing.
_DROPPED = "_assert_tensor_metadata.default"
_NUMBER_ASKED = "asks for a number of a row (item(), if, while); use torch.where"
# What torch says of the most common mistakes, and what to do.
_IN_WORDS = {
    "Expected more than 1 value per channel": "batch normalization looks across examples; use "
    "GroupNorm or LayerNorm, or eval mode",
    "argument #1 'indices'": "an embedding takes whole numbers; freeze it with --integers N",
    "missing a required argument": "forward takes one tensor, the example; make all else from it, "
    "as a mask by x == 0",
    ".numpy() is not supported": "numpy does not work on an example; write it in torch",
    "must be tuple of ints,but got FakeTensor": "gives a size by numbers, as pack_padded_sequence "
    "does; use a mask over a fixed length",
}
_Loss = Callable[[Tensor, Tensor], Tensor]  # (output of one example, its y) -> ()
_ASKS = ("data-dependent", "DataDependent", "GuardOn")  # of torch.export


@dataclass(frozen=True, slots=True)
class Frozen:
    """A graph, and its weights' first numbers: by name, and as the bytes of a safetensors file.

    checked: the same, ready to run.
    """

    graph: GraphFile
    values: Mapping[str, Tensor]
    file: bytes
    checked: CheckedGraph


def freeze(
    where: str,
    module: nn.Module,
    example: Example,
    target: Tensor,
    *,
    trainable: Sequence[str] = ("*",),
    loss: _Loss | None = None,
    outputs: int = 0,
) -> Frozen:
    """Return the graph of `module` called with one example, tried as a site tries it.

    where: names the module in messages, as model.entry=nets:Net. target: (2,), the least and the
    largest y. loss: of one example's output and its y. None: one of tacit's own. outputs: of one
    example, which a module may give without its batch. 0: any number. Each part of the module keeps
    its own train or eval flag. Raises ConfigError.
    """
    x = torch.zeros((1, *example.shape), dtype=DTYPES[example.dtype])
    network = _Frozen.of(where, module, (EXAMPLE,), (x,))
    check_patterns(where, (name for name, _ in module.named_parameters()), trainable)
    trained = {
        name
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and is_trainable(name, trainable)
    }
    weights = tuple(
        GraphWeight(
            name=name, shape=tuple(value.shape), dtype=_dtype(where, value), trained=name in trained
        )
        for name, value in network.values.items()
    )
    own_loss = None
    if loss is not None:
        own_loss = _loss(f"model.loss of {where}", loss, network.result[0], target[0])
    file = save(dict(network.values))
    nodes, output = network.nodes, network.output
    if outputs > 1 and network.result.shape == (outputs,):
        whole = Node(name="%whole", op="unsqueeze.default", args=(Of(of=output), 0))
        nodes, output = (*nodes, whole), whole.name
    trial = trial_of(example, network.values)
    with renamed(where):
        graph = GraphFile(
            format=1,
            example=example,
            weights=weights,
            nodes=tuple(guarded(nodes, trial)),
            output=output,
            loss=own_loss,
            values=hashlib.sha256(file).hexdigest(),
        )
        ready = run_on_zeros(completed(graph, trial, target), network.values, target)
    return Frozen(graph, network.values, file, ready)


def _loss(where: str, loss: _Loss, output: Tensor, target: Tensor) -> LossPart:
    class OfOne(nn.Module):
        def forward(self, output: Tensor, y: Tensor) -> Tensor:
            return loss(output, y)

    frozen = _Frozen.of(where, OfOne(), (OUTPUT, TARGET), (torch.zeros_like(output), target))
    if frozen.values:
        raise ConfigError(f"{where}: holds numbers of its own; make them constants")
    return LossPart(nodes=frozen.nodes, output=frozen.output)


def _dtype(where: str, value: Tensor) -> Any:
    names = {dtype: name for name, dtype in DTYPES.items()}
    if value.dtype not in names:
        raise ConfigError(f"{where}: has numbers of {value.dtype}; use float32")
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
        cls, where: str, module: nn.Module, names: Sequence[str], inputs: tuple[Tensor, ...]
    ) -> _Frozen:
        program = _exported(where, module, inputs)
        signature = program.graph_signature
        values, references = _inputs(program, names)
        nodes: list[Node] = []
        result: Tensor | None = None
        output = ""
        for node in program.graph.nodes:
            if node.op == "call_function" and str(node.target) != f"aten.{_DROPPED}":
                references[node.name] = f"%{node.name}"
                nodes.append(_node(where, node, references))
            elif node.op == "output":
                kinds = [spec.kind for spec in signature.output_specs]
                _check_outputs(where, kinds)
                first = node.args[0][kinds.index(OutputKind.USER_OUTPUT)]
                if not isinstance(first, fx.Node):
                    raise ConfigError(f"{where}: gives {first!r}, not a tensor")
                output, result = references[first.name], first.meta["val"]
        assert result is not None
        return cls(tuple(nodes), output, values, result)


def _exported(where: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    try:
        with in_silence():
            # An empty table: nothing is taken apart, and what writes in place no longer does.
            return export(module, inputs, strict=False).run_decompositions({})
    except FROM_OWN_CODE as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = _own_line([(frame.filename, str(frame.lineno)) for frame in frames])
        why = f"{line}: {_in_words(error)}" if line else _in_words(error)
        raise ConfigError(f"{where}: cannot be frozen: {why}") from error


def _in_words(error: BaseException) -> str:
    text = str(error)
    if any(word in f"{type(error).__name__} {text}" for word in _ASKS):
        return _NUMBER_ASKED
    for what, words in _IN_WORDS.items():
        if what in text:
            return words
    return f"{type(error).__name__}: {(text.splitlines() or [''])[0][:200]}"


def _inputs(program: Any, names: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the weights' numbers by name, and the graph's name of each input of the export.

    The weights stand in the order of their definition, parameters, buffers, constants. One that has
    several names, as a tied one, has its first.
    """
    values: dict[str, Tensor] = {}
    references: dict[str, str] = {}
    tied: dict[int, str] = {}
    own = iter(names)
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            references[spec.arg.name] = next(own)
            continue
        source = program.constants if spec.target in program.constants else program.state_dict
        tensor = source[spec.target]
        name = tied.setdefault(id(tensor), spec.target)
        references[spec.arg.name] = name
        values.setdefault(name, tensor.detach().contiguous().clone())
    return values, references


def _check_outputs(where: str, kinds: list[OutputKind]) -> None:
    if OutputKind.BUFFER_MUTATION in kinds:
        raise ConfigError(
            f"{where}: writes to a buffer, as batch normalization does, which looks "
            "across examples; use GroupNorm or LayerNorm, or eval mode"
        )
    if OutputKind.USER_INPUT_MUTATION in kinds:
        raise ConfigError(f"{where}: writes to its input; work on a copy (clone)")
    if kinds.count(OutputKind.USER_OUTPUT) != 1:
        raise ConfigError(f"{where}: gives {kinds.count(OutputKind.USER_OUTPUT)} tensors, not one")


def _node(where: str, node: fx.Node, references: Mapping[str, str]) -> Node:
    line = _line(node)
    if node.target is operator.getitem:
        op = ITEM
    elif isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
        op = str(node.target).removeprefix("aten.")
        op = _SAME.get(op, op)
    else:
        raise ConfigError(f"{where}: {node.target} ({line}) is not an operation of torch's own")
    if op not in OPERATIONS and op != ITEM:
        why = instead(op) or "is not an operation that tacit knows"
        raise ConfigError(f"{where}: {line}: {op} {why}")
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
        raise ConfigError(f"{where}: {line}: {op} has {error}") from error


def _argument(value: Any, references: Mapping[str, str]) -> Any:
    if isinstance(value, fx.Node):
        return Of(of=references[value.name])
    if isinstance(value, list | tuple):
        return tuple(_argument(item, references) for item in value)
    if value == _TO_THE_END:
        return None
    return encoded(value)


def _line(node: fx.Node) -> str:
    """Return where the module asked for it: the last line that is not torch's own."""
    trace = node.meta.get("stack_trace") or ""
    return _own_line([(match["file"], match["line"]) for match in _FRAME.finditer(trace)])


def _own_line(frames: list[tuple[str, str]]) -> str:
    """Return "file:line" of the last frame that is neither torch's nor ours; "": there is none."""
    own = [(file, line) for file, line in frames if not file.startswith(_NOT_OWN)]
    if not own or not own[-1][0].endswith(".py"):
        return ""
    file, line = own[-1]
    return f"{Path(file).name}:{line}"


@contextmanager
def in_silence() -> Iterator[None]:
    """Keep torch's own pages on what it cannot export from the screen: they end in one line."""
    levels = {
        name: logging.getLogger(name).level
        for name in [*logging.root.manager.loggerDict]
        if name.partition(".")[0] == "torch"
    }
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
