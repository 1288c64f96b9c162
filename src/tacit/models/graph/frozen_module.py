"""A user's own module, frozen into a graph where it is built.

A row's gradient is computed by the graph alone: none of the user's Python runs on a private row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from tacit.models.graph.graph_model import GraphModel
from tacit.models.model_contract import Layout
from tacit.models.own_module import OwnModule


@dataclass(frozen=True, eq=False)
class FrozenModule(GraphModel):
    """The graph of a module, with the module's own names, start and code digest.

    A batch of public rows goes through the module itself.
    """

    own: OwnModule = field(kw_only=True, compare=False, repr=False)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @cached_property
    def layout(self) -> Layout:
        """(name, shape) of every trained parameter, in the order of the module's definition."""
        return self.own.layout

    @property
    def variant(self) -> str:
        """The code's digest: two models whose vectors are interchangeable have the same."""
        return f"code {self.own.code}"

    def init(self, seed: int) -> Tensor:
        """Return the module's own initial parameters (d,), of the seed alone, or its start."""
        return self.own.first_values(seed)

    def state(self, params: Tensor) -> dict[str, Tensor]:
        """Return what the module loads: frozen parameters too, and tied ones by all names."""
        return self.own.state(self.unflatten(params))

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        """Return the output of one example (*shape), by its graph, or of a batch (B, *shape)."""
        if x.dim() == len(self.shape):
            return super().logits(params, x)
        return self.own.run(self.unflatten(params), x, self.classes)
