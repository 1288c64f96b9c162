"""A peer's model, made of public and paid-for numbers only, and the one way for it to leave.

Where no server applies the updates, what crosses the boundary is the model itself, or how far it
moved. Both are post-processing, at no further cost, of a public initial model, vectors that
`Releaser.release` let out, and what other peers sent. Nothing else can get into a `Trained`, and
nothing but a `Trained` makes a `Shared`.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Final

import torch
from torch import Tensor

from tacit.errors import PrivacyError
from tacit.models import Model
from tacit.privacy.release.release import Released

_SEAL: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A vector that may leave a peer, (d,) float32.

    Only `Trained` makes one; the wire takes nothing else.
    """

    vector: Tensor
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError(
                "Shared is made by privacy.trained.Trained only: everything else is private"
            )


class Trained:
    """A model w (d,) of one peer, to which only public and paid-for numbers are ever added.

    It is float64. What two peers exchange is float32: one adds it, the other takes the very same
    numbers away. So the sum over all peers moves by float64 rounding only: 10^-16 of a parameter
    for each exchange.
    """

    def __init__(self, model: Model, seed: int) -> None:
        """Begin with the public initial model, a function of the run's seed alone."""
        self.params: Tensor = model.init(seed).to(torch.float64)

    def descend(self, released: Released, rate: float) -> None:
        """Step w ← w - rate·g̃ with g̃ = vector·scale, which is charged.

        Raises PrivacyError if w would not be finite.
        """
        step = released.vector.to(torch.float64) * (rate * released.scale)
        self._become(self.params - step)

    def meet(self, theirs: Tensor) -> Shared:
        """Move half way to `theirs`: w ← w + δ with δ = (theirs - w)/2.

        Returns δ, for the other peer.

        theirs: (d,), as it came from another peer, which takes δ from its own model and is then at
        the same mean. Raises PrivacyError if w would not be finite.
        """
        delta = ((theirs.to(torch.float64) - self.params) / 2).to(torch.float32)
        self._become(self.params + delta)
        return Shared(delta, _SEAL)

    def shift(self, delta: Tensor) -> None:
        """Step w ← w - δ: our side of an exchange.

        delta: (d,), as the other peer sent it. Raises as `meet`.
        """
        self._become(self.params - delta)

    def mean(self, others: list[Tensor]) -> None:
        """Set w to the mean of `others`, each (d,), as peers sent them.

        Our own is among them; they are added in their order.
        """
        self._become(torch.stack(others).to(torch.float64).mean(0))

    def share(self) -> Shared:
        """Return the current model, for another peer."""
        return Shared(self.params.to(torch.float32), _SEAL)

    def restore(self, params: Tensor) -> None:
        """Continue from `params`, from the durable state of an earlier process of this peer."""
        self.params = params

    @staticmethod
    def again(vector: Tensor) -> Shared:
        """Return a vector that was shared before a restart, from the peer's own durable state."""
        return Shared(vector, _SEAL)

    def _become(self, params: Tensor) -> None:
        if not bool(torch.isfinite(params.to(torch.float32)).all()):
            raise PrivacyError(
                "the model is finite no more; refusing to train on (a smaller learning rate may "
                "help)"
            )
        self.params = params
