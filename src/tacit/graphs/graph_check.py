"""What a graph is, before any row is there: that it fits together, and what it costs.

Every node is tried on torch's meta device, which has shapes and no numbers, so that nothing is
allocated. What fits is then run once, on zeros: some operations take constants there that they do
not take with numbers. Guarantee for a graph that passes: every operation is of the closed list.
Every shape is fixed. No index leaves what it is an index of. No node has more numbers than the
bounds below allow. So a row takes the same steps as every other row, and none raises. No value is
written to.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.graphs.graph_file import EXAMPLE, OUTPUT, TARGET, Example, GraphFile, Node, Of
from tacit.graphs.interpreter import GraphStep, Program
from tacit.graphs.layer_shapes import misfit
from tacit.graphs.node_arguments import DTYPES, bound, refusal
from tacit.graphs.operations import ITEM, OPERATIONS, Operation, instead
from tacit.graphs.products import multiply_adds
from tacit.graphs.whole_numbers import Interval, bounds_of, hull

MOST_NUMBERS = 1 << 28  # of one node's result
MOST_HELD = 1 << 31  # bytes of all results of a row together
MOST_READ = 1 << 32  # numbers that the nodes of a row read and give together
MOST_MULTIPLY_ADDS = 1 << 38  # of a row
_WHOLE = (torch.int64, torch.int32)
# What torch raises on the meta device, for shapes and constants.
_RAISED = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RuntimeError, TypeError, ValueError),
)


@contextmanager
def renamed(where: str) -> Iterator[None]:
    """Let `where` begin the messages about a graph within the block, in place of model.file."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {str(error).removeprefix('model.file: ')}") from error


@contextmanager
def refusing() -> Iterator[None]:
    """Raise ConfigError for what torch raises within the block, in one line."""
    try:
        yield
    except _RAISED as error:
        raise ConfigError(f"model.file: does not fit: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


@dataclass(frozen=True, slots=True)
class NodeSize:
    """What a node gives, and what it costs. shape: of its result, or of the first of several."""

    shape: tuple[int, ...]
    multiply_adds: int


@dataclass(frozen=True, slots=True)
class CheckedGraph:
    """A graph that may be run. network: $x to the output. loss: $output, $y to one number.

    output: the shape of the network's output for a batch of one. multiply_adds: of a row, forward.
    sizes: of the network's nodes, by name.
    """

    graph: GraphFile
    network: Program
    loss: Program | None
    output: tuple[int, ...]
    multiply_adds: int
    sizes: Mapping[str, NodeSize]


def checked(graph: GraphFile, values: Mapping[str, Tensor], target: Tensor) -> CheckedGraph:
    """Return the graph, ready to run, as `sketched` does, once it has been run on zeros."""
    with refusing():
        return run_on_zeros(sketched(graph, values, target), values, target)


def run_on_zeros(
    network: CheckedGraph, values: Mapping[str, Tensor], target: Tensor
) -> CheckedGraph:
    """Return the graph itself.

    Raises ConfigError where it fails on an example of zeros, or writes to a weight or the example.
    """
    example = network.graph.example
    x = torch.zeros((1, *example.shape), dtype=DTYPES[example.dtype])
    before = _checksums({**values, EXAMPLE: x})
    try:
        with torch.no_grad():
            output = network.network.run(values, x)
            if network.loss is not None:
                network.loss.run({}, output[0], target[0])
    except _RAISED as error:
        why = _first_line(error)
        raise ConfigError(f"model.file: fails on an example of zeros: {why}") from error
    after = _checksums({**values, EXAMPLE: x})
    if written := [name for name, checksum in before.items() if after[name] != checksum]:
        raise ConfigError(
            f"model.file: writes to {written[0]}, so a row would tell of the rows before"
        )
    return network


def _checksums(values: Mapping[str, Tensor]) -> dict[str, int]:
    return {
        name: zlib.crc32(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        for name, value in values.items()
    }


def sketched(graph: GraphFile, values: Mapping[str, Tensor], target: Tensor) -> CheckedGraph:
    """Return the graph by shapes alone. Raises ConfigError, naming the node and its line.

    values: the weights' numbers, by name. target: (2,), the least and the largest y.
    """
    for weight in graph.weights:
        _check_weight(weight.name, weight.shape, weight.dtype, values)
    names = [weight.name for weight in graph.weights]
    trial = trial_of(graph.example, {name: values[name] for name in names})
    for node in graph.nodes:
        trial.add(node)
    return completed(graph, trial, target)


def completed(graph: GraphFile, trial: NodeTrial, target: Tensor) -> CheckedGraph:
    """Return the graph whose nodes have all been tried in `trial`, once its loss is tried, too.

    Raises ConfigError, naming the node and its line.
    """
    network = trial.program((EXAMPLE,), graph.output)
    output = trial.value(graph.output)
    loss = None
    if graph.loss is not None:
        of_loss = NodeTrial()  # weights are no loss's
        of_loss.known(OUTPUT, output[0], None)
        of_loss.known(TARGET, target[0].to("meta"), _bounds(target))
        try:
            for node in graph.loss.nodes:
                of_loss.add(node)
            loss = of_loss.program((OUTPUT, TARGET), graph.loss.output)
        except ConfigError as error:
            what = str(error).removeprefix("model.file: ")
            raise ConfigError(f"model.file: loss: {what}") from error
        if of_loss.value(graph.loss.output).dim():
            raise ConfigError("model.file: loss: is not one number")
    shape = tuple(output.shape)
    return CheckedGraph(graph, network, loss, shape, trial.multiply_adds, trial.sizes)


def trial_of(example: Example, values: Mapping[str, Tensor]) -> NodeTrial:
    """Return a trial that knows the example, and the weights by name, and no node yet."""
    trial = NodeTrial()
    for name, value in values.items():
        trial.known(name, value.to("meta"), _bounds(value))
    x = torch.empty((1, *example.shape), dtype=DTYPES[example.dtype], device="meta")
    trial.known(EXAMPLE, x, None if example.below is None else Interval(0, example.below - 1))
    return trial


def _check_weight(
    name: str, shape: tuple[int, ...], dtype: str, values: Mapping[str, Tensor]
) -> None:
    if name not in values:
        raise ConfigError(f"model.weights: has no {name}")
    value = values[name]
    if tuple(value.shape) != shape or value.dtype != DTYPES[dtype]:
        raise ConfigError(
            f"model.weights: {name} is {list(value.shape)} of {value.dtype}; the graph has "
            f"{list(shape)} of {dtype}"
        )


def _bounds(value: Tensor) -> Interval | None:
    if value.dtype not in _WHOLE or not value.numel():
        return None
    if not any(value.stride()):  # one number that stands everywhere
        value = value[(0,) * value.dim()]
    return Interval(int(value.min()), int(value.max()))


class NodeTrial:
    """The values of a graph on the meta device, node by node."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._limits: dict[str, Interval | None] = {}
        self._steps: list[GraphStep] = []
        self.sizes: dict[str, NodeSize] = {}
        self.held = 0  # bytes
        self.read = 0  # numbers
        self.multiply_adds = 0

    def known(self, name: str, value: Any, limits: Interval | None) -> None:
        """Add a value. Raises ConfigError for a name that is taken."""
        if name in self._values:
            raise ConfigError(f"model.file: {name} stands there twice")
        self._values[name] = value
        if isinstance(value, Tensor) and value.dtype == torch.bool:
            limits = Interval(0, 1)
        self._limits[name] = limits

    def value(self, name: str) -> Tensor:
        """Return a value. Raises ConfigError for one that is not there, or is no tensor."""
        value = self._values.get(name)
        if not isinstance(value, Tensor):
            raise ConfigError(f"model.file: {name}: no tensor has this name")
        return value

    def program(self, inputs: Sequence[str], output: str) -> Program:
        """Return the nodes that were added as a program. Raises ConfigError: it has no output."""
        self.value(output)
        return Program(inputs, self._steps, output)

    def limits(self, name: str) -> Interval | None:
        """Return between which bounds a value's whole numbers lie; None: none are known."""
        return self._limits.get(name)

    def add(self, node: Node) -> None:
        """Try a node, and add it. Raises ConfigError."""
        if node.op == ITEM:
            self._steps.append(self._item(node))
            return
        operation = OPERATIONS.get(node.op)
        if operation is None:
            why = instead(node.op) or "is not an operation that tacit knows"
            raise refusal(node, why)
        stated = bound(node, operation)
        self._check(node, operation, stated)
        arguments = {name: self._filled(node, value) for name, value in stated.items()}
        if why := misfit(node.op, arguments):
            raise refusal(node, why)
        made = {each.name for each in operation.arguments if each.name == "device"}
        try:
            result = operation.call(**arguments, **dict.fromkeys(made, torch.device("meta")))
        except _RAISED as error:
            raise refusal(node, f"does not fit: {_first_line(error)}") from error
        self._count(node, operation, arguments, result)
        limits = None
        if isinstance(result, Tensor) and result.dtype in _WHOLE:
            constants = {name: value for name, value in stated.items() if not _tensors(value)}
            inputs = {name: self._hull(value) for name, value in stated.items() if _tensors(value)}
            limits = bounds_of(node.op, constants, inputs, result)
        self.known(node.name, result, limits)
        self._steps.append(GraphStep(node.name, operation.call, stated, "device" if made else ""))

    def _item(self, node: Node) -> GraphStep:
        match node.args:
            case (Of() as source, int() as place) if not isinstance(place, bool):
                several = self._values.get(source.of)
            case _:
                raise refusal(node, "takes a node and a place")
        if not isinstance(several, tuple | list) or not 0 <= place < len(several):
            raise refusal(node, f"{source.of} has no result {place}")
        self.known(node.name, several[place], None)
        self.sizes[node.name] = NodeSize(tuple(several[place].shape), 0)
        return GraphStep(node.name, None, {"source": source, "place": place}, "")

    def _check(self, node: Node, operation: Operation, stated: Mapping[str, Any]) -> None:
        if operation.condition is not None and (why := operation.condition(stated)):
            raise refusal(node, why)
        values = (self._filled(node, value) for value in stated.values())
        floats = {value.is_floating_point() for value in values if isinstance(value, Tensor)}
        if operation.floats_only and False in floats:
            raise refusal(node, "may raise for whole numbers; use floats")
        rounds_down = stated.get("rounding_mode") == "floor"
        if True in floats and (operation.whole_only or rounds_down):
            raise refusal(node, instead("floor_divide" if rounds_down else node.op))
        if operation.index is not None:
            self._check_places(node, operation, operation.index, stated)

    def _check_places(
        self, node: Node, operation: Operation, index: tuple[str, str], stated: Mapping[str, Any]
    ) -> None:
        """Refuse an index that could lie outside of what it is an index of."""
        places, source = (stated.get(name) for name in index)
        if not isinstance(source, Of) or not isinstance(places, Of | list):
            raise refusal(node, f"{' or '.join(index)} is no tensor")
        size = self.value(source.of).shape
        if isinstance(places, list):
            several = list(enumerate(places))
        elif index[0] == "target":
            several = [(1 if len(size) > 1 else 0, places)]
        else:
            several = [(stated.get("dim", 0), places)]
        ignored = _ignored(operation, stated)
        for dim, place in several:
            if place is None:
                continue
            if not -len(size) <= dim < len(size):
                raise refusal(node, f"has no dimension {dim}")
            negative = size[dim] if isinstance(places, list) else 0
            self._check_place(node, place, range(-negative, size[dim]), ignored)

    def _check_place(self, node: Node, place: Any, inside: range, ignored: int | None) -> None:
        """Refuse places that could lie outside; ignored: a target that a loss leaves out."""
        if not isinstance(place, Of):
            raise refusal(node, "has a number where a tensor is needed")
        if self.value(place.of).dtype not in _WHOLE:
            raise refusal(node, "has a mask as an index, which gives a size by numbers")
        limits = self._limits.get(place.of)
        if place.of == TARGET and limits is not None and limits.low == ignored:
            limits = limits._replace(low=0)  # between the two is no target
        if limits is None or limits.low < inside.start or limits.high >= inside.stop:
            raise refusal(
                node,
                f"could have an index outside of 0 to {inside.stop - 1}; clamp it first"
                + ("" if limits is None else f" (it is {limits.low} to {limits.high})"),
            )

    def _filled(self, node: Node, value: Any) -> Any:
        if isinstance(value, Of):
            if value.of not in self._values:
                raise refusal(node, f"reads {value.of}, which is not there before it")
            return self.value(value.of)
        if isinstance(value, list):
            return [self._filled(node, item) for item in value]
        return value

    def _hull(self, value: Any) -> Interval | None:
        if isinstance(value, Of):
            return self._limits.get(value.of)
        return hull([self._limits.get(item.of) for item in value if isinstance(item, Of)])

    def _count(
        self, node: Node, operation: Operation, arguments: Mapping[str, Any], result: Any
    ) -> None:
        results = result if isinstance(result, tuple | list) else (result,)
        for each in results:
            if not isinstance(each, Tensor) or each.dtype not in DTYPES.values():
                raise refusal(node, "gives something else than numbers of a known type")
            if each.numel() > MOST_NUMBERS:
                raise refusal(node, f"gives {each.numel():,} numbers, above {MOST_NUMBERS:,}")
            self.held += each.numel() * each.element_size()
        if self.held > MOST_HELD:
            raise refusal(node, f"is where a row has over {MOST_HELD:,} bytes in all")
        self.read += sum(each.numel() for each in (*results, *_tensors_in(arguments.values())))
        if self.read > MOST_READ:
            raise refusal(node, f"is where a row reads over {MOST_READ:,} numbers in all")
        products = 0
        if operation.products:
            products = multiply_adds(node.op, arguments, result)
            self.multiply_adds += products
            if self.multiply_adds > MOST_MULTIPLY_ADDS:
                raise refusal(node, f"is where a row needs over {MOST_MULTIPLY_ADDS:,} products")
            if products > MOST_NUMBERS and len(arguments.get("tensors", ())) > 2:
                raise refusal(
                    node, f"may hold {products:,} numbers, above {MOST_NUMBERS:,}; take two at once"
                )
        shape = tuple(results[0].shape) if results else ()
        self.sizes[node.name] = NodeSize(shape, products)


def _tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list):
            yield from _tensors_in(value)


def _ignored(operation: Operation, stated: Mapping[str, Any]) -> int | None:
    """Return the target that a loss leaves out, if it is torch's usual one (`datasets.target`)."""
    stands = {each.name: each.default_value for each in operation.arguments}
    usual: int | None = stands.get("ignore_index")
    return usual if stated.get("ignore_index", usual) == usual else None


def _tensors(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, Of) for item in value)
    return isinstance(value, Of)
