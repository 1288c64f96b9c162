"""Sums over a tree: which nodes a batch is in, what they are charged, and what they show of a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.errors import BudgetSpent
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import Clipped, integer_sum
from tacit.privacy.private_sum.sampling import PassDraw
from tacit.privacy.release import Plan, Releaser
from tacit.privacy.release.tree import TreeReleaser, levels

CLIP, BATCHES, UNITS = 1.0, 8, 40


def plan(z: float = 1.0, batches: int = BATCHES, epsilon: float = math.inf) -> Plan:
    return Plan(
        "discrete_gaussian",
        1 / batches,
        UNITS / batches,
        z,
        0.1,
        10.0,
        epsilon,
        1e-5,
        rows_max=UNITS,
        passes=batches,
    )


class OneRow:
    """A private sum over one row, which is in the batch `place` of each pass, and in no other.

    Its vector is C in the first of two numbers. within: whether the row is there at all.
    """

    records = 1
    way = "one row"

    def __init__(self, of: Plan, place: int, *, within: bool = True) -> None:
        self.plan = of
        self.place = place
        self.within = within
        self.begun = 0
        self.at = 0

    def begin_pass(self) -> None:
        self.begun += 1
        self.at = 0

    def compute(self, params: Tensor, clip: float) -> Clipped:
        drawn = self.within and self.at == self.place
        self.at += 1
        step = self.plan.step(clip)
        assert step is not None
        rows = torch.tensor([[clip, 0.0]])
        return integer_sum(rows, clip, torch.tensor([drawn]), step)

    def rehearsals(self) -> list[Callable[[], Clipped]]:
        return []


def tree(
    of: Plan, summed: OneRow, seed: int = 1, kind: type[TreeReleaser] = TreeReleaser
) -> TreeReleaser:
    return kind(Releaser(of, Ledger(":memory:", "t"), Random(seed)), summed)


def nodes(of: TreeReleaser, count: int, clip: float = CLIP) -> Tensor:
    """Return (count, 2): what as many steps release, in units of C."""
    released = [of.release(torch.zeros(2), clip) for _ in range(count)]
    return torch.stack([each.vector.double() * each.scale for each in released])


@pytest.mark.parametrize("batches", [1, 2, 3, 5, 8, 13, 16])
def test_a_batch_is_in_as_many_nodes_as_a_pass_is_charged_for(batches: int) -> None:
    """Without noise to speak of, a node is C where it has the batch of the row."""
    of = plan(1e-3, batches)
    size = UNITS / batches
    counts = []
    for place in range(batches):
        row = OneRow(of, place)
        seen = nodes(tree(of, row), batches)[:, 0] * size
        assert torch.all((seen - seen.round()).abs() < 0.02)
        counts.append(int(seen.round().sum()))
    assert max(counts) == levels(batches)
    assert counts[0] == levels(batches)


def test_any_sum_is_one_of_few_nodes() -> None:
    """The first t batches are the nodes of the ones of t in binary."""
    of = plan(1e-3)
    for place in range(BATCHES):
        held: dict[int, float] = {}
        released = nodes(tree(of, OneRow(of, place)), BATCHES)[:, 0] * UNITS / BATCHES
        for step, node in enumerate(released.tolist(), 1):
            level = (step & -step).bit_length() - 1
            held = {at: each for at, each in held.items() if at > level} | {level: node}
            assert len(held) == step.bit_count()
            assert sum(held.values()) == pytest.approx(float(step > place), abs=0.05)


def test_a_pass_is_charged_when_it_begins_and_never_within() -> None:
    of = plan()
    releaser = Releaser(of, Ledger(":memory:", "t"), Random(1))
    row = OneRow(of, 0)
    summed = TreeReleaser(releaser, row)
    charged = []
    for _ in range(2 * BATCHES + 1):
        summed.release(torch.zeros(2), CLIP)
        charged.append(releaser.ledger.charged().count)
    each = levels(BATCHES)
    assert charged == [each] * BATCHES + [2 * each] * BATCHES + [3 * each]
    assert row.begun == 3
    (spend,) = releaser.ledger.history()
    assert (spend.sampling_rate, spend.count) == (1.0, 3 * each)


def test_a_step_that_fails_ends_the_pass() -> None:
    class Fails(OneRow):
        def compute(self, params: Tensor, clip: float) -> Clipped:
            if self.begun == 1 and self.at == 2:
                raise OSError("the disk is gone")
            return super().compute(params, clip)

    of = plan()
    releaser = Releaser(of, Ledger(":memory:", "t"), Random(1))
    summed = TreeReleaser(releaser, Fails(of, 0))
    nodes(summed, 2)
    with pytest.raises(OSError, match="the disk is gone"):
        nodes(summed, 1)
    assert summed.begins
    nodes(summed, 1)
    assert releaser.ledger.charged().count == 2 * levels(BATCHES)


def test_a_pass_keeps_the_clip_that_it_began_with() -> None:
    of = plan(1e-3)
    summed = tree(of, OneRow(of, 1))
    nodes(summed, 1, clip=1.0)
    released = summed.release(torch.zeros(2), 5.0)
    assert released.clip == 1.0
    assert float(released.vector[0]) * released.scale * UNITS / BATCHES == pytest.approx(1, 0.02)


def test_a_budget_pays_for_whole_passes() -> None:
    calibrated = Plan.calibrated(
        epsilon=2.0,
        delta=1e-5,
        pushes=2 * levels(BATCHES) + 1,
        sampling_rate=1.0,
        batch=UNITS / BATCHES,
        clip_min=0.1,
        clip_max=10.0,
        mechanism="discrete_gaussian",
    )
    of = replace(calibrated, sampling_rate=1 / BATCHES, rows_max=UNITS, passes=BATCHES)
    summed = tree(of, OneRow(of, 0), seed=None)  # type: ignore[arg-type]
    nodes(summed, 2 * BATCHES)
    with pytest.raises(BudgetSpent):
        nodes(summed, 1)


# -- what a pass shows of a row --------------------------------------------------------------------


def separation(of: Plan, passes: int, kind: type[TreeReleaser] = TreeReleaser) -> float:
    """Return how far the best statistic of a pass lies apart with a row of batch 1 and without.

    In units of its deviation: μ of the pass, √levels/z where all is right. The statistic is the sum
    of the nodes that the row should be in.
    """
    inside, outside = OneRow(of, 0), OneRow(of, 0, within=False)
    within = torch.tensor([step & (step - 1) == 0 for step in range(1, BATCHES + 1)])
    values = []
    for seed, row in ((1, inside), (2, outside)):
        seen = nodes(tree(of, row, seed, kind), passes * BATCHES).view(passes, BATCHES, 2)
        values.append(seen[:, within, 0].sum(1))
    apart = values[0].mean() - values[1].mean()
    return float(apart / values[1].std())


PASSES = 500


@pytest.mark.parametrize(("wrong", "right"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_a_pass_shows_of_a_row_what_it_is_charged_for(wrong: float, right: bool) -> None:
    """μ is √levels/z to 18 % with probability 1 - 10^-4; with 2/3 or 3/2 of the noise it is not."""
    z = 1.0
    claimed = math.sqrt(levels(BATCHES)) / z
    measured = separation(plan(wrong * z), PASSES)
    assert (abs(measured / claimed - 1) < 0.18) == right


class ForgetsNothing(TreeReleaser):
    """A mutant: what a node has released stays in the sums of the lowest level."""

    def _node(self, step: int, batch: Clipped) -> Clipped:
        node = super()._node(step, batch)
        self._sums[0] = node
        return node


class OneNoise(TreeReleaser):
    """A mutant: all nodes of a pass have the same noise."""

    def release(self, params: Tensor, clip: float) -> Any:
        releaser = self._releaser
        if self.begins:
            self._seed = getattr(self, "_seed", 0) + 1
        releaser.random = Random(self._seed)
        return super().release(params, clip)


@pytest.mark.parametrize("mutant", [ForgetsNothing, OneNoise])
def test_mutants_are_caught(mutant: type[TreeReleaser]) -> None:
    """A batch is in more nodes than a pass is charged for, or two nodes share their noise."""
    of = plan(0.05)
    seen = nodes(tree(of, OneRow(of, 0), kind=mutant), BATCHES) * UNITS / BATCHES
    moved = float(seen[:, 0].sum()) > levels(BATCHES) + 0.5
    alike = bool((seen[:, 1].diff().abs() < 1e-9).any())
    assert moved or alike
    right = nodes(tree(of, OneRow(of, 0)), BATCHES) * UNITS / BATCHES
    assert float(right[:, 0].sum()) < levels(BATCHES) + 0.5
    assert bool((right[:, 1].diff().abs() > 1e-9).all())


# -- the batches of a pass -------------------------------------------------------------------------


def batches_of(units: int, seed: int) -> list[list[int]]:
    of = replace(plan(), rows_max=4 * units)
    draws = PassDraw(units, of, Random(seed))
    draws.begin()
    return [draws.rows().tolist() for _ in range(BATCHES)]


def test_each_unit_is_in_one_batch_and_moves_no_other() -> None:
    fewer, more = batches_of(100, 3), batches_of(101, 3)
    assert sorted(unit for batch in more for unit in batch) == list(range(101))
    assert [[unit for unit in batch if unit != 100] for batch in more] == fewer


def test_batches_are_uniform() -> None:
    """χ² of 8 batches of 8,000 units is below 40 with probability 1 - 10^-6."""
    of = replace(plan(), rows_max=20_000)
    draws = PassDraw(8000, of, Random(5))
    draws.begin()
    sizes = np.array([len(draws.rows()) for _ in range(BATCHES)])
    assert (((sizes - 1000) ** 2) / 1000).sum() < 40
    with pytest.raises(ValueError, match="a pass must begin"):
        draws.rows()
