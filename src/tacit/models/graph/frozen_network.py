"""A graph as a module of torch, for who has an exported model and uses torch alone."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.graphs.graph_check import sketched
from tacit.graphs.graph_file import GraphFile, read_graph
from tacit.graphs.node_arguments import DTYPES
from tacit.models.graph.graph_model import run_batch


class FrozenNetwork(nn.Module):
    """The network of a graph's file, with zeros for weights: `load_state_dict` gives it its own.

    No code is read from the file.
    """

    def __init__(self, file: str) -> None:
        """file: as `tacit freeze` writes it. Raises ConfigError."""
        super().__init__()
        graph = read_graph(Path(file))
        for weight in graph.weights:
            value = torch.zeros(weight.shape, dtype=DTYPES[weight.dtype])
            place, _, name = weight.name.rpartition(".")
            holder = self._holder(place)
            if weight.trained:
                holder.register_parameter(name, nn.Parameter(value))
            else:
                holder.register_buffer(name, value)
        self._graph: GraphFile = graph

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of a batch x (B, *shape), row by row. Raises ConfigError."""
        weights = self.state_dict()
        program = sketched(self._graph, weights, torch.zeros(2)).network
        return run_batch(program, weights, x)

    def _holder(self, place: str) -> nn.Module:
        """Return the module of a dotted name, made where it is not there."""
        module: nn.Module = self
        for name in filter(None, place.split(".")):
            if name not in dict(module.named_children()):
                module.add_module(name, nn.Module())
            module = module.get_submodule(name)
        return module
