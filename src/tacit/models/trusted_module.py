"""A user's module whose code runs on private rows as it is, as the owners of the rows trust it.

Its steps may follow a row's numbers, and its time then tells of them. All that is said of it is
tried on public numbers, and not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.models.losses import Loss, cross_entropy
from tacit.models.model_contract import LayerValues
from tacit.models.own_module import NamedByModule, OwnModule
from tacit.models.own_network import OwnNetwork


@dataclass(frozen=True, eq=False)
class TrustedModule(NamedByModule, OwnNetwork):
    """A module as it is, its public start and its loss. Compared by identity.

    classes: numbers that it gives for an example, 0 for any number. labels: classes of the target,
    0 where it has none. example_loss: None: the objective's. below: what
    whole numbers of an example lie below. Guarantee: each row runs in a copy of
    the module and of all numbers that it is given, so that no row finds what another left in them.
    """

    example_loss: Loss | None = field(default=cross_entropy, compare=False, repr=False)
    labels: int = 0
    own: OwnModule = field(kw_only=True, compare=False, repr=False)
    below: int | None = field(default=None, kw_only=True)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def traced(self) -> bool:
        """Return False: its layers are not seen."""
        return False

    @property
    def trusted(self) -> bool:
        """Return True: its steps may follow a row's numbers."""
        return True

    def trace(self, params: Tensor, x: Tensor) -> list[LayerValues]:
        """Return only the module as a whole: its input and its scores."""
        return [LayerValues(x, self.logits(params, x))]

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        """Return the module's output of a batch x (B, *shape), or of one example (*shape)."""
        if x.dim() == len(self.shape):
            return self.logits(params, x.unsqueeze(0)).squeeze(0)
        return self.own.run_copies(self.unflatten(params), x, self.classes)

    def random_batch(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `count` random examples, of no data: inside the declared values."""
        x = self.random_inputs(count, generator, self.below)
        return x, self.random_targets(count, generator)
