"""The edge whose updates are sums of gradients over a binary tree."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.laws import Laws
from tacit.algorithms.base.owner import Owner
from tacit.config.algorithm_contract import Sections
from tacit.models import Model
from tacit.privacy.ledger.chain import Charge
from tacit.privacy.private_sum.choice import WAYS, Ways
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Releaser
from tacit.privacy.release.tree import TreeReleaser, levels
from tacit.protocol.messages import SERVER, GlobalModel, Outgoing, Push, Update
from tacit.robust.law import Law


class TreeSumsTask(EdgeTask):
    """One node of the tree for each model, in passes of B disjoint batches over all rows.

    The t-th update of a pass is the noisy sum of the latest 2^k batches' mean gradients, with 2^k
    the largest power of two that divides t. A pass is charged as ⌊log2 B⌋ + 1 releases without
    sampling (`release.tree`). The count that an update is charged grows where a pass begins only.
    """

    kind: Literal["tree sums"] = Field("tree sums", description="nodes of a tree over batches")
    batches: int = Field(
        16, gt=0, le=4096, description="B, disjoint batches of a pass over an edge's rows"
    )

    @property
    def most_steps(self) -> int:
        """Releases that the update which begins a pass pays for."""
        return levels(self.batches)

    @property
    def least_steps(self) -> int:
        """0: the others are paid."""
        return 0

    @property
    def passes(self) -> int:
        """B."""
        return self.batches

    @property
    def lawful(self) -> bool:
        """Whether an honest update has a law: a node's sum is of more than one batch."""
        return False

    def agree(self, run: Sections) -> None:
        """Raise ValueError unless the sums are of integers, with noise at the edge."""
        super().agree(run)
        privacy = run.privacy
        if privacy.mechanism not in ("discrete_gaussian", "none") or privacy.noise_at == "server":
            raise ValueError(
                f"privacy.mechanism={privacy.mechanism} at the {privacy.noise_at}: sums over a "
                "tree are of integers; use discrete_gaussian at the edge"
            )

    def role(self, owner: Owner, horizon: int, ways: Ways = WAYS) -> EdgeRole:
        """Return a `TreeSumsEdge`."""
        kind = owner.kind or TreeSumsEdge
        return kind(owner.name, owner.model, owner.releaser, owner.private_sum(ways))

    def law(self, laws: Laws, update: Update, clip: float, horizon: int) -> Law:
        """Raise NotImplementedError: there is none."""
        raise NotImplementedError


class TreeSumsEdge(EdgeRole):
    """The edge that answers each model with the next node of its tree."""

    def __init__(
        self, edge: str, model: Model, releaser: Releaser, private_sum: PrivateSum
    ) -> None:
        super().__init__(edge, model, releaser, private_sum)
        self.tree = TreeReleaser(releaser, private_sum)

    @property
    def most_steps(self) -> int:
        """Releases that the model which begins a pass is charged for."""
        return self.tree.levels

    def next_charge(self) -> Charge | None:
        """Return the charge that pays ahead for the next pass, where the next model begins it."""
        if self.tree.begins:
            return super().next_charge()
        return None

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Compute the next batch and release the largest node that it ends."""
        released = self.tree.release(message.params, message.clip)
        return [Outgoing(SERVER, Push(self.edge, message.version, released))]
