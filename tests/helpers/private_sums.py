"""The private sum of an edge that a test makes by itself, as `registry.edge` makes it."""

from __future__ import annotations

from tacit.algorithms.base.edge import EdgeRole
from tacit.datasets import PrivateRows
from tacit.datasets.edge_rows import EdgeRows
from tacit.models import Model
from tacit.privacy.private_sum.choice import WAYS, Ways, private_sum
from tacit.privacy.private_sum.plain import Plain
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Releaser


def sum_of(
    rows: PrivateRows,
    model: Model,
    releaser: Releaser,
    device: str = "cpu",
    *,
    rows_alone: bool = True,
    ways: Ways = WAYS,
) -> PrivateSum:
    """Return the private sum of `rows` with the plan and the randomness of `releaser`."""
    plan, random = releaser.plan, releaser.random
    return private_sum(rows, model, plan, random, device, rows_alone=rows_alone, ways=ways)


def rows_of(role: EdgeRole) -> EdgeRows:
    """Return the rows that a role's private sum is over, as it has them."""
    sampled = role.private_sum.slots if isinstance(role.private_sum, Plain) else role.private_sum
    assert isinstance(sampled, RowsAlone | Slots)
    return EdgeRows(sampled.x, sampled.y)
