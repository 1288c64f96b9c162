"""The edge whose task is one noisy gradient."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

from pydantic import Field

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.laws import Laws
from tacit.algorithms.base.owner import Owner
from tacit.config.algorithm_contract import Sections
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.counted import COUNTED_WAYS
from tacit.privacy.private_sum.plain import WholeVector
from tacit.protocol.messages import SERVER, GlobalModel, Outgoing, Push, Update
from tacit.robust.law import Law

GRADIENT_WAYS: Final = Ways(plain=WholeVector)


class GradientEdge(EdgeRole):
    """The edge that answers each model with one noisy mean of clipped gradients.

    It is the edge side of MAPA's Algorithm 1 (arXiv:1912.07902). `start` is its line 1 ("send ε_k",
    which is for people), Halt its line 2.
    """

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Compute one noisy mean gradient (lines 3 to 8)."""
        released = self.releaser.release(
            message.clip,
            partial(self.private_sum.compute, message.params, message.clip),  # lines 4 and 5
            paper_dims=self.model.first_layer,
        )
        return [Outgoing(SERVER, Push(self.edge, message.version, released))]  # line 8


class GradientTask(EdgeTask):
    """One noisy mean gradient for each model.

    counts_clipped: an update has one number more, of which a server makes the share of units whose
    gradient was within C (`private_sum.counted`).
    """

    kind: Literal["gradient"] = Field("gradient", description="one noisy gradient for each model")

    counts_clipped: bool = Field(
        False, description="tell the share of units within C, for half a per cent of C"
    )

    @property
    def lawful(self) -> bool:
        """Whether an update is a gradient alone, which has a law."""
        return not self.counts_clipped

    @property
    def beside(self) -> int:
        """One number for the count."""
        return int(self.counts_clipped)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where no edge clips a row, so that none counts."""
        if self.counts_clipped and run.privacy.noise_at == "server":
            raise ValueError(
                "privacy.noise_at=server: there no edge clips a row, so none counts; leave out "
                "counts_clipped"
            )

    def role(self, owner: Owner, horizon: int, ways: Ways = GRADIENT_WAYS) -> EdgeRole:
        """Return a `GradientEdge`."""
        kind = owner.kind or GradientEdge
        if self.counts_clipped:
            ways = COUNTED_WAYS
        return kind(owner.name, owner.model, owner.releaser, owner.private_sum(ways))

    def law(self, laws: Laws, update: Update, clip: float, horizon: int) -> Law:
        """Return the law of (sum + noise)/b."""
        return laws.gradient(update.edge, clip)
