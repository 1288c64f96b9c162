"""A front as a graph: what a record goes through once, as data and not as code.

Guarantee: a record's features are a function of that record and of public constants alone. Proof: a
checked graph holds operations of a closed list, which are functions of their inputs, and this
record is the only one among them. It keeps nothing between two records, and takes the same steps
for each. Where numbers lie cannot reach the result: every record is copied to memory that torch
aligns alike, and goes through at one shape and on one thread. No record raises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from tacit import regular_file
from tacit.errors import ConfigError
from tacit.graphs.graph_check import CheckedGraph, checked, renamed
from tacit.graphs.graph_file import read_graph
from tacit.graphs.graph_values import MOST_VALUES, tensors_in
from tacit.graphs.interpreter import one_thread

FIELD = "data.features.front"
NO_TARGET = torch.zeros(2)  # a front has no loss


class FrozenFront:
    """A front's graph at work. shape: of the features of one record."""

    def __init__(self, graph: CheckedGraph, values: Mapping[str, Tensor]) -> None:
        """values: of the weights, by name. Raises ConfigError: it gives no batch of features."""
        if len(graph.output) < 2 or graph.output[0] != 1 or graph.loss is not None:
            raise ConfigError(
                f"gives {list(graph.output)} for a batch of one; expected a tensor (1, …), and no "
                "loss"
            )
        self.shape = graph.output[1:]
        self._run = graph.network.bound(values)
        self._x = (1, *graph.graph.example.shape)

    @torch.no_grad()
    def features(self, record: Tensor) -> Tensor:
        """Return the features of one record (*shape), float32."""
        with one_thread():
            x = torch.empty(self._x).copy_(record)
            return self._run(x)[0].to(torch.float32, copy=True)  # it may be what it was given


@dataclass(frozen=True, slots=True)
class GraphFront:
    """The features that a graph's file gives, as the run file names it.

    file: its name. digest: SHA-256 of the graph. values: the safetensors file of its weights.
    """

    file: str
    digest: str
    path: Path = field(compare=False)
    values: Path = field(compare=False)
    values_sha256: str

    @property
    def constants(self) -> list[object]:
        """All that it depends on, wherever its files lie."""
        return [self.digest, self.values_sha256]

    def shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the features of a record of `shape`. Raises ConfigError."""
        return _ready(self, shape).shape

    def of_record(self, record: Tensor) -> Tensor:
        """Return the features of one record (*shape), float32."""
        return _ready(self, tuple(record.shape)).features(record)


@lru_cache(maxsize=16)
def _ready(front: GraphFront, shape: tuple[int, ...]) -> FrozenFront:
    """Return the graph of a front, checked. Raises ConfigError."""
    where = f"{FIELD}={front.file}"
    graph = read_graph(front.path, FIELD)
    if graph.digest() != front.digest:
        raise ConfigError(f"{where}: is another graph than the run definition says")
    example = graph.example
    if example.dtype != "float32" or example.shape != shape:
        numbers = "numbers" if example.below is None else "whole numbers"
        raise ConfigError(
            f"{where}: takes records of {list(example.shape)} {numbers}; the data has "
            f"{list(shape)} numbers"
        )
    try:
        content = regular_file.content(front.values, MOST_VALUES)
    except OSError as error:
        raise ConfigError(f"{where}: {front.values.name}: {error.strerror or error}") from error
    if hashlib.sha256(content).hexdigest() != front.values_sha256:
        raise ConfigError(
            f"{where}: {front.values.name} is not what the run definition says (SHA-256)"
        )
    values = tensors_in(content, f"{where}: {front.values.name}")
    with renamed(where):
        return FrozenFront(checked(graph, values, NO_TARGET), values)
