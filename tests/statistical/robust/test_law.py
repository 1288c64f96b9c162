"""The law of honest updates: kept by honest edges whatever their data, broken by others.

The false alarm of a whole run is 1e-6 here; seeds are fixed.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.grid import grid_step
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import integer_sum
from tacit.privacy.release import Plan, Releaser
from tacit.robust import law
from tacit.robust.law import Law, Sums

T = math.log(1e6)
SIZE, ROWS, BATCH, CLIP = 400, 80, 40.0, 0.5
PLAN = Plan("discrete_gaussian", 0.5, BATCH, 2.0, 0.1, 1.0, epsilon=1e4, delta=1e-5, rows_max=ROWS)
LAW = Law(CLIP / BATCH, ROWS * 0.5, 2.0 * CLIP / BATCH)


def honest(count: int, pull: Tensor | None = None) -> list[Tensor]:
    """Return updates that a Releaser makes, of rows with the longest pull along `pull`."""
    direction = torch.zeros(SIZE) if pull is None else CLIP * pull
    releaser = Releaser(PLAN, Ledger(":memory:", "digits"), Random(7))
    generator = torch.Generator().manual_seed(1)
    updates = []
    for _ in range(count):
        drawn = torch.rand(ROWS, generator=generator) < 0.5
        gradients = direction.expand(ROWS, SIZE)
        rows_sum = integer_sum(gradients, CLIP, drawn, grid_step(CLIP, 2.0))
        released = releaser.release(CLIP, lambda rows_sum=rows_sum: rows_sum)  # type: ignore[misc]
        updates.append(released.vector.to(torch.float64) * released.scale)
    return updates


def broken(updates: list[Tensor], law: Law = LAW) -> tuple[int, str]:
    """Return after how many updates the law is broken, and how, or (0, "") if it is not."""
    sums = Sums(SIZE)
    for number, update in enumerate(updates, 1):
        sums.add(update, law)
        if why := sums.broken(T):
            return number, why
    return 0, ""


UNIT = torch.ones(SIZE) / SIZE**0.5


@pytest.mark.parametrize("pull", [None, UNIT], ids=["no gradient", "all rows one way"])
def test_honest_updates_keep_the_law_whatever_their_data(pull: Tensor | None) -> None:
    assert broken(honest(300, pull)) == (0, "")


@pytest.mark.parametrize(
    ("times", "passes"), [(1.0, True), (2 / 3, False), (1.5, False)], ids=["1x", "2/3x", "3/2x"]
)
def test_noise_is_held_to_its_law_from_both_sides(times: float, passes: bool) -> None:
    # no rows pull here, so that nothing but noise is judged
    still = Law(1e-9, 1.0, LAW.deviation)
    number, why = broken([times * update for update in honest(60)], still)
    assert (number == 0) is passes
    assert ("owe" in why) is (times < 1)


@pytest.mark.parametrize(
    ("forge", "within"),
    [
        (lambda update: 10 * update, 1),
        (lambda update: -10 * update, 1),
        (lambda update: torch.full_like(update, 9.9e5), 1),
        (lambda update: UNIT.double() * torch.linalg.vector_norm(update), 8),
    ],
    ids=["x10", "flip x10", "all 9.9e5", "constant"],
)
def test_an_edge_that_adds_no_honest_noise_is_seen(forge, within: int) -> None:  # type: ignore[no-untyped-def]
    number, why = broken([forge(update) for update in honest(20)])
    assert 1 <= number <= within, why


def test_a_pull_beyond_the_rows_that_can_be_drawn_adds_up() -> None:
    # 1.4 times what 40 rows can pull, under honest noise: invisible in one update
    pulled = [update + 1.4 * 40 * CLIP / BATCH * UNIT.double() for update in honest(400)]
    number, why = broken(pulled)
    assert number > 1
    assert "sum" in why


def test_a_smaller_clip_on_the_way_changes_nothing() -> None:
    half = Law(LAW.pull / 2, LAW.rows, LAW.deviation / 2)
    sums = Sums(SIZE)
    for number, update in enumerate(honest(100)):
        sums.add(update if number < 50 else update / 2, LAW if number < 50 else half)
        assert sums.broken(T) == ""


def test_an_accusation_never_reads_as_if_the_law_were_kept() -> None:
    # Given 43 updates that lack so little of their noise that two digits of it are 1,
    sums = Sums(SIZE)
    for update in honest(43):
        sums.add(update, LAW)
    least = sums._least(law._level(43, T))
    sums.energy = sums.whole.squared / 43 + 0.996**2 * least
    assert sums.broken(T) == "its 43 updates have 0.996 of the noise that they owe"
