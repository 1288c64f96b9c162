"""The edge whose one update is the noisy second moments of all its rows."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from pydantic import Field

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.laws import Laws
from tacit.algorithms.base.owner import Owner
from tacit.models import Model
from tacit.privacy.private_sum.choice import WAYS, Ways
from tacit.privacy.private_sum.moment_grid import moments_of
from tacit.privacy.private_sum.moment_rows import MomentRows
from tacit.privacy.private_sum.moment_sums import MomentSums
from tacit.privacy.release import Releaser
from tacit.protocol.messages import SERVER, GlobalModel, Outgoing, Push, Update
from tacit.robust.law import Law


def rows_of(model: Model, weights: tuple[float, ...], norm: float) -> MomentRows:
    """Return what a row of the model's is in second moments.

    weights: of its classes. norm: of a usual row, for a number.
    """
    (outputs, numbers), _ = (shape for _, shape in model.layout)
    if model.squared_error:
        return MomentRows(numbers + 1, 0, norm=norm)
    return MomentRows(numbers + 1, outputs, weights)


class MomentsEdge(EdgeRole):
    """The edge that answers any model with the second moments of its rows.

    Asked again, it has spent its budget, and retires.
    """

    def __init__(self, edge: str, model: Model, releaser: Releaser, moments: MomentSums) -> None:
        super().__init__(edge, model, releaser, moments)
        self.moments = moments

    @property
    def push_size(self) -> int:
        """Numbers of a push."""
        return moments_of(self.moments.rows.features, self.moments.rows.targets)

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Release the moments of all rows."""
        compute = partial(self.moments.compute, message.params, message.clip)
        released = self.releaser.release(message.clip, compute)
        return [Outgoing(SERVER, Push(self.edge, message.version, released))]


class MomentsTask(EdgeTask):
    """The second moments of all rows, once: half of XᵀX, and Xᵀy."""

    kind: Literal["moments"] = Field("moments", description="second moments of all rows, once")
    class_weights: tuple[float, ...] = Field((), description="of each class, at most 1")
    norm: float = Field(1.0, description="of a usual row, for a number")

    @property
    def lawful(self) -> bool:
        """Whether an honest update has a law: it is no gradient."""
        return False

    def role(self, owner: Owner, horizon: int, ways: Ways = WAYS) -> EdgeRole:
        """Return a `MomentsEdge`. Raises ConfigError as `MomentGrid.of`, PrivacyError."""
        kind: Any = owner.kind or MomentsEdge
        data = owner.data.for_edge(owner.model.labels_below)
        rows = rows_of(owner.model, self.class_weights, self.norm)
        plan, random = owner.releaser.plan, owner.releaser.random
        moments = MomentSums(data, owner.model, rows, plan, random)
        edge: EdgeRole = kind(owner.name, owner.model, owner.releaser, moments)
        return edge

    def law(self, laws: Laws, update: Update, clip: float, horizon: int) -> Law:
        """Raise NotImplementedError: there is none."""
        raise NotImplementedError
