"""What a graph is, in numbers and words, for people who review it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tacit.models.graph.graph_check import sketched
from tacit.models.graph.graph_file import Argument, DtypeName, FarFloat, GraphFile, MemoryOrder, Of
from tacit.models.graph.node_arguments import DTYPES


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """Sizes of a graph. trained, fixed: numbers of its weights. multiply_adds: forward."""

    example: str
    output: tuple[int, ...]
    trained: int
    trained_weights: int
    fixed: int
    multiply_adds: int


def facts_of(graph: GraphFile) -> GraphFacts:
    """Return the facts of a graph, tried without its values. Raises ConfigError.

    Whole numbers among the weights are taken for zeros, as their values are not looked at.
    """
    values = {
        weight.name: torch.zeros((), dtype=DTYPES[weight.dtype]).expand(weight.shape)
        for weight in graph.weights
    }
    network = sketched(graph, values, torch.zeros(2, dtype=torch.int64))
    sizes = [(math.prod(weight.shape), weight.trained) for weight in graph.weights]
    example = graph.example
    words = f"{list(example.shape)} of {example.dtype}"
    if example.below is not None:
        words += f", from 0 to {example.below - 1:,}"
    return GraphFacts(
        words,
        network.output[1:],
        sum(size for size, trained in sizes if trained),
        sum(trained for _, trained in sizes),
        sum(size for size, trained in sizes if not trained),
        network.multiply_adds,
    )


def node_lines(graph: GraphFile) -> Iterator[str]:
    """Yield each node as a line: its name, operation, arguments, and where it comes from."""
    for node in graph.nodes:
        arguments = [_words(value) for value in node.args]
        arguments += [f"{name}={_words(value)}" for name, value in node.kwargs.items()]
        line = f"   # {node.line}" if node.line else ""
        yield f"{node.name} = {node.op}({', '.join(arguments)}){line}"


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
