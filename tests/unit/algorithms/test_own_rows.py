"""Edges with own modules: a record that the module raises at adds nothing, and ends nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.algorithms.base.local_steps import LocalStepsEdge
from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.audit.statistics import proven
from tacit.datasets import EdgeRows, Units
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model
from tacit.models.own_network import OwnNetwork
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Mechanism, Plan, Releaser
from tacit.protocol import wire_up
from tacit.protocol.messages import GlobalModel, Push
from tests.helpers import own_modules
from tests.helpers.nightly import nightly
from tests.helpers.own_modules import WIDTH, Branching, Coded, Root, Solve, against
from tests.helpers.private_sums import rows_of, sum_of

ROWS, CLIP, DELTA = 12, 1.0, 1e-5


def model_of(kind: type[Solve]) -> OwnNetwork:
    return model_by_name(kind.__name__)


@cache
def model_by_name(name: str) -> OwnNetwork:
    kind = getattr(own_modules, name)
    return module_model(
        f"nets:{name}", kind, shape=(WIDTH,), outputs=2, loss=cross_entropy, trusted=True
    )


def edge(
    model: OwnNetwork,
    mechanism: Mechanism = "discrete_gaussian",
    *,
    record: bool = True,
    rate: float = 1.0,
    rows: int = ROWS,
    z: float = 2.0,
    units: bool = False,
    make: Callable[..., EdgeRole] = GradientEdge,
) -> EdgeRole:
    """Return an edge with `rows` rows and a public one.

    The record, if present, is the last private row.
    """
    x, y = model.random_batch(rows + 1, torch.Generator().manual_seed(2))
    x[rows], y[rows] = 0.0, 0
    members = torch.tensor([at for at in range(rows + 1) if record or at != rows - 1])
    count = len(members) - 1
    pairs = Units(np.arange(count), np.array([*range(0, count, 2), count]), 2, True)
    data = EdgeRows(x[members], y[members], pairs if units else None)
    # Public: the same with the record and without.
    plan = Plan(mechanism, rate, rate * rows, z, CLIP, CLIP, math.inf, DELTA, rows_max=rows)
    releaser = Releaser(plan, Ledger(":memory:", "own"), Random())
    return make("edge-0", model, releaser, sum_of(data, model, releaser))


def slots(role: EdgeRole) -> Slots:
    assert isinstance(role.private_sum, Slots)
    return role.private_sum


def attack(model: OwnNetwork) -> torch.Tensor:
    """Return parameters that make the module raise for the record."""
    x, _ = model.random_batch(ROWS + 1, torch.Generator().manual_seed(2))
    params = model.init(1)
    against(model.unflatten(params), x[ROWS - 1])
    return params


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "gaussian", "knorm"])
@pytest.mark.parametrize("kind", [Solve, Coded, Root, Branching])
def test_a_record_that_raises_adds_nothing_to_the_sum(
    kind: type[Solve], mechanism: Mechanism
) -> None:
    model, params = model_of(kind), attack(model_of(kind))
    role, everyone = slots(edge(model, mechanism)), torch.arange(ROWS)
    drawn = torch.ones(ROWS, dtype=torch.bool)
    total = role.clipped(params, CLIP, everyone, drawn).total
    # In the other world the public row stands in its slot.
    without = torch.where(everyone == ROWS - 1, ROWS, everyone)
    other = role.clipped(params, CLIP, without, everyone != ROWS - 1).total
    assert torch.equal(total, other)
    assert total.any()


def test_a_unit_with_a_row_that_raises_adds_nothing() -> None:
    model, params = model_of(Solve), attack(model_of(Solve))
    role = slots(edge(model, units=True))
    gradients = role.gradients(params, torch.arange(ROWS // 2))
    assert not gradients[-1].isfinite().all()
    assert gradients[:-1].isfinite().all()
    masks = torch.ones(ROWS // 2, dtype=torch.bool)
    all_but_one = torch.arange(ROWS // 2) != ROWS // 2 - 1
    everyone = torch.arange(ROWS // 2)
    total = role.clipped(params, CLIP, everyone, masks).total
    assert torch.equal(total, role.clipped(params, CLIP, everyone, all_but_one).total)


def fedasync(*arguments: object) -> EdgeRole:
    section = FedAsync.model_validate({"name": "fedasync", "steps_min": 3, "steps_max": 3})
    return LocalStepsEdge(section.task(), *arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [GradientEdge, fedasync])
def test_an_edge_answers_a_model_that_makes_a_record_raise(make: Callable[..., EdgeRole]) -> None:
    model, params = model_of(Solve), attack(model_of(Solve))
    role = edge(model, make=make)
    (out,) = role.on_message(GlobalModel(1, params, CLIP))
    assert isinstance(out.message, Push)
    assert role.refusals == 0


def test_the_delay_is_rehearsed_on_a_grid_of_public_rows_and_charges_nothing() -> None:
    graph = module_model(
        "n:n", lambda: torch.nn.Linear(WIDTH, 2), shape=(WIDTH,), outputs=2, loss=cross_entropy
    )
    role = edge(graph)
    works = role.rehearsals()
    assert len(works) == 3  # ordinary rows, zeros, rows that overflow
    for work in works:
        work()
    assert len(edge(model_of(Branching)).rehearsals()) == 12  # at other parameters, too
    assert role.releaser.ledger.charged().count == 0


@pytest.mark.parametrize("pushes", [40, *nightly(1500)])
def test_what_is_sent_tells_no_more_than_is_claimed(pushes: int) -> None:
    """Prove with as many pushes as once showed ε ≥ 2.79 of 0.07, by an edge that ended."""
    model, params = model_of(Solve), attack(model_of(Solve))
    rate, z = 0.1, 5.429
    rows = ROWS if pushes < 1000 else 100
    pushed: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    for record in pushed:
        role = edge(model, record=record, rate=rate, rows=rows, z=z)
        if rows != ROWS:
            against(model.unflatten(params), rows_of(role).x[rows - 1])
        for _ in range(pushes):
            (out,) = role.on_message(GlobalModel(1, params, CLIP))
            assert isinstance(out.message, Push)
            sent = out.message.released.vector.double()
            length = len(wire_up.up("own", 1, out.message, model.schema_hash()))
            pushed[record].append((float(sent.norm()), length))
    claim = epsilon_pld((Spend(rate, z, 1, "discrete_gaussian"),), DELTA)
    for which in (0, 1):
        inside, outside = (
            np.array([float(push[which]) for push in pushed[at]]) for at in (True, False)
        )
        assert proven(inside, outside, DELTA)[1] <= claim
        assert proven(outside, inside, DELTA)[1] <= claim
