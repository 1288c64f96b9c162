"""What a graph is, in numbers and words, for people who review it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tacit.graphs.graph_check import CheckedGraph, refusing, sketched
from tacit.graphs.graph_file import (
    OUTPUT,
    TARGET,
    Argument,
    DtypeName,
    FarFloat,
    GraphFile,
    MemoryOrder,
    Node,
    Of,
)
from tacit.graphs.graph_folds import FoldedLayers, LayerRow, folded
from tacit.graphs.graph_layers import GraphLayer, layers_of, of_one
from tacit.graphs.node_arguments import DTYPES
from tacit.graphs.operations import ITEM
from tacit.shown import printable

MOST_ROWS = 200  # of a table
_MOST_WEIGHTS = 16  # of a row of a document
_MOST_SOURCES = 8  # of a row
_NAME = 44  # characters
_COLUMNS = ("", "layer", "operations", "reads", "gives", "trained", "fixed", "multiply-adds")
_MOST_KINDS = 6  # of operations in a row
# Operations whose own names are longer than a row.
_SHORT = {
    "native_batch_norm_legit_no_training": "batch_norm",
    "scaled_dot_product_attention": "attention",
    "binary_cross_entropy_with_logits": "cross_entropy of logits",
}


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """A graph in numbers. input, output: shapes of one example's.

    trained, fixed: numbers of its weights. multiply_adds: of a row, forward.
    operations: how many of each kind, the most first. loss: operations of its own loss, or None.
    layers: all, in their order.
    """

    digest: str
    example: str
    input: tuple[int, ...]
    output: tuple[int, ...]
    trained: int
    fixed: int
    multiply_adds: int
    operations: Mapping[str, int]
    loss: int | None
    layers: tuple[GraphLayer, ...]

    def rows(self, most: int = MOST_ROWS) -> FoldedLayers:
        """Return the layers in at most `most` rows."""
        return folded(self.layers, most)


def facts_of(graph: GraphFile) -> GraphFacts:
    """Return the facts of a graph, tried without its values. Raises ConfigError.

    Whole numbers among the weights are taken for zeros, as their values are not looked at.
    """
    values = {
        weight.name: torch.zeros((), dtype=DTYPES[weight.dtype]).expand(weight.shape)
        for weight in graph.weights
    }
    with refusing():
        return facts_of_checked(sketched(graph, values, torch.zeros(2, dtype=torch.int64)))


def facts_of_checked(checked: CheckedGraph, digest: str | None = None) -> GraphFacts:
    """Return the facts of a graph that has been tried.

    digest: SHA-256 of its file, where a run trains fewer of its weights; None: its own.
    """
    graph = checked.graph
    sizes = [(math.prod(weight.shape), weight.trained) for weight in graph.weights]
    counts = Counter(node.op.partition(".")[0] for node in graph.nodes if node.op != ITEM)
    return GraphFacts(
        digest=digest or graph.digest(),
        example=_example(graph),
        input=graph.example.shape,
        output=of_one(checked.output),
        trained=sum(size for size, trained in sizes if trained),
        fixed=sum(size for size, trained in sizes if not trained),
        multiply_adds=checked.multiply_adds,
        operations=dict(counts.most_common()),
        loss=None if graph.loss is None else len(graph.loss.nodes),
        layers=layers_of(checked),
    )


def _example(graph: GraphFile) -> str:
    example = graph.example
    if example.below is None:
        return f"{shape_words(example.shape)} numbers ({example.dtype})"
    return f"{shape_words(example.shape)} whole numbers from 0 to {example.below - 1:,}"


def shape_words(shape: tuple[int, ...]) -> str:
    """Return a shape as people write it; of a single number 1.

    >>> shape_words((3, 32, 32)), shape_words(())
    ('3×32×32', '1')
    """
    return "×".join(map(str, shape)) or "1"


def operation_words(layer: GraphLayer) -> str:
    """Return what a layer does: its operations, at most some of them."""
    names = [_SHORT.get(name, name) for name in layer.operations]
    if len(names) > _MOST_KINDS:
        names = [*names[: _MOST_KINDS - 1], f"{len(names) - _MOST_KINDS + 1} more kinds"]
    return ", ".join(names)


def name_words(row: LayerRow, most: int) -> str:
    """Return a row's name in at most `most` characters, the end of a long one.

    A layer without weights has the line that asked for it.
    """
    layer = row.layer
    if row.layers > 1:
        return f"… {row.layers:,} more layers"
    again = " (again)" if layer.again and layer.name else ""
    name = printable(layer.name or layer.line) + again
    return name if len(name) <= most else f"…{name[1 - most :]}"


def layer_cells(facts: GraphFacts) -> list[tuple[str, ...]]:
    """Return a table of the layers: its heading, the example, and then a row for each.

    A column in which nothing stands is left out.
    """
    view = facts.rows()
    rows = [
        _COLUMNS,
        ("0", "the example", "", "", shape_words(facts.input), "", "", ""),
        *(_cells(view, number, row) for number, row in enumerate(view.rows, 1)),
    ]
    used = [place for place, cells in enumerate(zip(*rows[1:], strict=True)) if any(cells)]
    return [tuple(row[place] for place in used) for row in rows]


def _cells(view: FoldedLayers, number: int, row: LayerRow) -> tuple[str, ...]:
    layer = row.layer
    sources = [
        *map(str, layer.sources[:_MOST_SOURCES]),
        *(["…"] * bool(layer.sources[_MOST_SOURCES:])),
    ]
    return (
        str(number),
        name_words(row, _NAME) + _times(view, number),
        operation_words(layer),
        ", ".join(sources),
        shape_words(layer.shape),
        _if_any(layer.trained),
        _if_any(layer.fixed),
        _if_any(layer.multiply_adds),
    )


def _times(view: FoldedLayers, number: int) -> str:
    """Return what the first row of a part that repeats says about it."""
    for repeat in view.repeats:
        if repeat.first == number == repeat.last:
            return f"  ({repeat.times:,} times)"
        if repeat.first == number:
            return f"  ({number} to {repeat.last}: {repeat.times:,} times)"
    return ""


def _if_any(value: int) -> str:
    return f"{value:,}" if value else ""


def document_of(facts: GraphFacts) -> dict[str, Any]:
    """Return the facts as JSON has them, of a bounded size."""
    view = facts.rows()
    return {
        "sha256": facts.digest,
        "example": facts.example,
        "output": list(facts.output),
        "trained": facts.trained,
        "fixed": facts.fixed,
        "multiply_adds": facts.multiply_adds,
        "operations": dict(facts.operations),
        "loss_operations": facts.loss,
        "layers": [_row(number, row) for number, row in enumerate(view.rows, 1)],
        "repeats": [
            {"first": each.first, "last": each.last, "times": each.times} for each in view.repeats
        ],
    }


def _row(number: int, row: LayerRow) -> dict[str, Any]:
    layer = row.layer
    return {
        "number": number,
        "layers": row.layers,
        "name": layer.name,
        "line": layer.line,
        "operations": list(layer.operations),
        "reads": list(layer.sources),
        "shape": list(layer.shape),
        "trained": layer.trained,
        "fixed": layer.fixed,
        "again": layer.again,
        "multiply_adds": layer.multiply_adds,
        "weights": [
            {"name": each.name, "shape": list(each.shape), "trained": each.trained}
            for each in layer.weights[:_MOST_WEIGHTS]
        ],
    }


def node_lines(graph: GraphFile) -> Iterator[str]:
    """Yield each node as a line: its name, operation, arguments, and where it comes from.

    Those of its own loss come last.
    """
    yield from _node_lines(graph.nodes)
    if graph.loss is not None:
        yield f"# loss, of {OUTPUT} and {TARGET}: {graph.loss.output}"
        yield from _node_lines(graph.loss.nodes)


def _node_lines(nodes: Iterable[Node]) -> Iterator[str]:
    for node in nodes:
        arguments = [_words(value) for value in node.args]
        arguments += [f"{name}={_words(value)}" for name, value in node.kwargs.items()]
        line = f"   # {printable(node.line)}" if node.line else ""
        yield f"{node.name} = {printable(node.op)}({', '.join(arguments)}){line}"


def _words(value: Argument) -> str:
    match value:
        case Of():
            return value.of
        case DtypeName():
            return value.dtype
        case MemoryOrder():
            return value.memory
        case FarFloat():
            return value.float
        case tuple():
            return f"[{', '.join(_words(item) for item in value)}]"
        case _:
            return repr(value)
