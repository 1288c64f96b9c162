"""Two attacks by an aggregator that only sends models, at the scale at which they once proved more
than the claim.

*Place*: a product of matrices rounds by where a row stands. Parameters that cancel make that last
bit a large number, so a record without any gradient of its own changed what the others added, when
rows stood one behind the other: µ at least 2.2 of 0.05 claimed. *Time*: a row that overflowed made
a push a third longer: ε at least 2.4 of 0.045. Here both see bytes on the wire, and the processor
time of each push.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.audit.adapters import vector
from tacit.audit.mutants_rows import CopiesStrangeRows
from tacit.audit.statistics import Finding, ScoreValues, proven
from tacit.audit.subject import SCHEMA, Randomness, Subject
from tacit.audit.times import QUIET_Z, times
from tacit.datasets import Dataset
from tacit.models import Model, build
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import WAYS, Ways
from tacit.privacy.private_sum.sampling import Batch
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Mechanism, Plan, Releaser
from tacit.protocol import wire_up
from tacit.protocol.messages import GlobalModel, Push
from tests.helpers.nightly import nightly
from tests.helpers.private_sums import sum_of

PUSHES, DELTA = 2000, 1e-5
MECHANISMS: tuple[Mechanism, ...] = ("gaussian", "discrete_gaussian")


class Packed(Slots):
    """As edges once were: the rows one behind the other, in a batch as long as there are rows."""

    def draw(self) -> Batch:
        """Draw all rows in their order: the attacks are at q = 1."""
        return Batch(torch.arange(len(self.y) - 1), torch.ones(len(self.y) - 1, dtype=torch.bool))


def edge(
    kind: type[Slots],
    data: Dataset,
    model: Model,
    mechanism: Mechanism,
    z: float,
    clip: float,
    *,
    alone: bool = True,
) -> GradientEdge:
    """Return an edge that computes as `tacit edge` does if `alone`, else in slots.

    A kind that fills slots itself is in slots either way.
    """
    ways = WAYS if kind is Slots else Ways(slots=kind, outer=kind)
    plan = Plan(
        mechanism, 1.0, 320.0, z, clip, clip, math.inf, DELTA
    )  # public: the same with the record and without
    releaser = Releaser(plan, Ledger(":memory:", "attack"), Random())
    rows = sum_of(data, model, releaser, rows_alone=alone and kind is Slots, ways=ways)
    return GradientEdge("edge-0", model, releaser, rows)


def sent(role: GradientEdge, params: Tensor, clip: float) -> bytes | None:
    """Return the edge's answer to a model, as bytes, or None if it sends nothing."""
    for out in role.on_message(GlobalModel(1, params, clip)):
        if isinstance(out.message, Push):
            return wire_up.up("attack", 1, out.message, SCHEMA)
    return None


# -- place -----------------------------------------------------------------------------------------

ADULT = build("logistic", (1, 1, 102), 2)
ROWS, LOUD = 100, 20.0  # rows beside the record that is removed; z


def cancelling(seed: int, scale: float) -> tuple[Tensor, Tensor]:
    """Return parameters (d,) and a row (102,) whose scores cancel to zero on paper."""
    generator = torch.Generator().manual_seed(seed)
    weights, values = (torch.rand(50, generator=generator) / 2 + 0.5 for _ in range(2))
    weights *= torch.randint(2, (50,), generator=generator) * 2 - 1
    order = torch.randperm(100, generator=generator) + 2
    row, weight = torch.zeros(102), torch.zeros(102)
    row[order], weight[order] = torch.cat((values, values)), torch.cat((weights, -weights)) * scale
    weight[0] = -scale  # what the quiet rows have, and the record: they are sure of their class
    return torch.cat((-weight, weight, torch.zeros(2))), row


def rows(row: Tensor, *, record: bool) -> Dataset:
    """Return the rows (record,) row, quiet, row, quiet, and so on.

    The record is quiet, too, and moves every other row by one place.
    """
    quiet = torch.zeros(102)
    quiet[0] = 1.0
    x = torch.stack([*([quiet] if record else []), *([row, quiet] * (ROWS // 2))])
    return Dataset(x.view(len(x), 1, 1, 102), torch.zeros(len(x), dtype=torch.int64), 2, "adult")


def mean_shift(kind: type[Slots], params: Tensor, row: Tensor, clip: float) -> Tensor:
    """Return how far the record moves the sum (d,), if every push is like the first.

    The record has no gradient of its own.
    """
    sums = []
    for record in (True, False):
        role = edge(kind, rows(row, record=record), ADULT, "gaussian", LOUD, clip)
        slots = role.private_sum
        assert isinstance(slots, Slots)
        batch = slots.draw()
        sums.append(slots.clipped(params, clip, batch.index, batch.mask).total.double())
    return sums[0] - sums[1]


@cache
def weakness(scale: float, clip: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the parameters, row and direction for which this machine's kernels differ most.

    They differ in what they compute of one row in different places.
    """
    candidates = []
    for seed in range(60):
        params, row = cancelling(seed, scale)
        candidates.append((params, row, mean_shift(Packed, params, row, clip)))
    return max(candidates, key=lambda each: float(each[2].norm()))


def proven_by_place(
    kind: type[Slots],
    mechanism: Mechanism,
    params: Tensor,
    row: Tensor,
    shift: Tensor,
    clip: float,
    *,
    alone: bool = True,
) -> tuple[float, float]:
    """Return the (µ, ε) that pushes with and without the record prove along `shift`.

    There are PUSHES of each. Both numbers are 0 where nothing leaves.
    """
    scores: list[ScoreValues] = []
    for record in (True, False):
        data = rows(row, record=record)
        role = edge(kind, data, ADULT, mechanism, LOUD, clip, alone=alone)
        pushes = [
            payload for _ in range(PUSHES) if (payload := sent(role, params, clip)) is not None
        ]
        if not pushes:
            return 0.0, 0.0
        scores.append((torch.stack([vector(payload) for payload in pushes]) @ shift).numpy())
    both = proven(scores[0], scores[1], DELTA), proven(-scores[0], -scores[1], DELTA)
    return max(mu for mu, _ in both), max(epsilon for _, epsilon in both)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("scale", "clip", "alone"), [(1e12, 1.0, True), (1e6, 8.0, True), *nightly((1e6, 8.0, False))]
)
def test_a_record_without_a_gradient_moves_nothing(
    scale: float, clip: float, alone: bool, mechanism: Mechanism
) -> None:
    params, row, shift = weakness(scale, clip)
    mu, epsilon = proven_by_place(Slots, mechanism, params, row, shift, clip, alone=alone)
    assert mu <= 1 / LOUD
    assert epsilon <= epsilon_pld([Spend(1.0, LOUD, 1, mechanism)], DELTA)


def test_the_attack_finds_rows_that_stand_one_behind_the_other() -> None:
    params, row, shift = weakness(1e6, 8.0)
    if float(shift.norm()) < 8.0:
        pytest.skip("the products of matrices of this machine round alike in every place")
    mu, epsilon = proven_by_place(Packed, "gaussian", params, row, shift, 8.0)
    assert mu > 1 / LOUD
    assert epsilon > epsilon_pld([Spend(1.0, LOUD, 1)], DELTA)


def test_parameters_that_nobody_learnt_are_refused_and_nothing_is_charged() -> None:
    params, row = cancelling(1, 1e6)
    role = edge(Slots, rows(row, record=True), ADULT, "gaussian", LOUD, 1.0)
    for bad in (1.0001e6, -1e12, math.nan, math.inf):
        params[7] = bad
        assert sent(role, params, 1.0) is None
        assert "params" in role.refusal
    assert role.releaser.ledger.charged().count == 0
    assert role.refusals == 4


# -- time ------------------------------------------------------------------------------------------


def proven_by_time(subject: Subject, pushes: int) -> dict[str, Finding]:
    """Return, by strange row, what the times of pushes with it prove.

    They are compared with the times of pushes with an ordinary row.
    """
    return {finding.test: finding for finding in times(subject, Randomness(), pushes)}


@pytest.mark.parametrize("mechanism", ["gaussian", *nightly("discrete_gaussian")])
def test_neither_a_row_that_overflows_nor_one_of_denormals_shows_in_the_time_of_a_push(
    mechanism: Mechanism,
) -> None:
    findings = proven_by_time(Subject(mechanism, mechanism=mechanism), 400)
    assert set(findings) == {"time, overflow", "time, denormals"}
    assert all(
        finding.measured <= finding.claim == epsilon_pld([Spend(1.0, QUIET_Z, 1, mechanism)], DELTA)
        for finding in findings.values()
    )


@pytest.mark.exhaustive
def test_the_attack_finds_a_copy_that_is_made_for_some_rows_only() -> None:
    ways = Ways(slots=CopiesStrangeRows, outer=CopiesStrangeRows)
    subject = Subject("MUTANT", ways=ways, rows_alone=False, honest=False)
    timing = proven_by_time(subject, 160)["time, overflow"]
    assert timing.measured > timing.claim
