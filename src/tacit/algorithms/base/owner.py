"""The owner of an edge's rows, as the edge's role is built from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit.algorithms.base.edge import EdgeRole
from tacit.datasets import PrivateRows
from tacit.models import Model
from tacit.privacy.private_sum.choice import WAYS, Ways, private_sum
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Releaser

EdgeFactory = Callable[..., EdgeRole]


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """What an edge role is built from and no other edge has.

    releaser: what alone releases anything of the rows. device: where the edge computes. rows_alone:
    as for `private_sum`. kind, ways: the class of the role, and of its private sum; None: the
    algorithm's own. folder: the run file's, where own code lies.
    """

    name: str
    data: PrivateRows
    model: Model
    releaser: Releaser
    device: str = "cpu"
    rows_alone: bool = True
    kind: EdgeFactory | None = None
    ways: Ways | None = None
    folder: Path | None = None

    def private_sum(self, ways: Ways = WAYS) -> PrivateSum:
        """Return the private sum over the rows, in one of the algorithm's `ways`."""
        return private_sum(
            self.data,
            self.model,
            self.releaser.plan,
            self.releaser.random,
            self.device,
            rows_alone=self.rows_alone,
            ways=self.ways or ways,
        )
