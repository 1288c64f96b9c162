"""A user's own module, frozen into a graph where it is built.

A row's gradient is computed by the graph alone: none of the user's Python runs on a private row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from tacit.models.graph.graph_model import GraphModel
from tacit.models.own_module import NamedByModule, OwnModule


@dataclass(frozen=True, eq=False)
class FrozenModule(NamedByModule, GraphModel):
    """The graph of a module, with the module's own names, start and code digest.

    A batch of public rows goes through the module itself.
    """

    own: OwnModule = field(kw_only=True, compare=False, repr=False)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        """Return the output of one example (*shape), by its graph, or of a batch (B, *shape)."""
        if x.dim() == len(self.shape):
            return super().logits(params, x)
        return self.own.run(self.unflatten(params), x, self.classes)
