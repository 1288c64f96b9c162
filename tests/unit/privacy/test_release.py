"""The one door: charge first, then compute; and nothing gets out that was not promised."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import pytest
import torch

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import Spend, certified_pushes
from tacit.privacy.ledger import UNCHARGED, Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import padded_size
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.release import Plan, Released, Releaser, Steps
from tests.helpers.paid import plan, released, releaser

TWO = torch.tensor([2.0, -2.0])


def query(clip: float = 1.0) -> Clipped:
    return Clipped(TWO, clip)


def pushes(sender: Releaser) -> int:
    return sum(row.count for row in sender.ledger.history())


class Bomb:
    """A query that must not run, or that fails."""

    def __init__(self) -> None:
        self.called = 0

    def __call__(self) -> Clipped:
        self.called += 1
        raise MemoryError("a batch too large")


# -- Released --------------------------------------------------------------------------------------


def test_a_released_vector_cannot_be_made_by_hand() -> None:
    for seal in (None, object(), True, "seal"):
        with pytest.raises(TypeError, match=r"release\(\) only"):
            Released(TWO, 1.0, 1.0, (), UNCHARGED, seal)


def test_a_released_vector_cannot_be_exchanged_for_another() -> None:
    paid: Any = released(TWO)
    with pytest.raises(dataclasses.FrozenInstanceError):
        paid.vector = torch.zeros(2)
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(paid, vector=torch.zeros(2))
    assert torch.equal(copy.copy(paid).vector, TWO)


# -- the order of things ---------------------------------------------------------------------------


def test_a_query_that_raises_still_costs_one_push() -> None:
    sender = releaser(plan(z=4.0), seed=None)
    remaining, bomb = sender.releases_left, Bomb()
    with pytest.raises(MemoryError):
        sender.release(1.0, bomb)
    assert (bomb.called, pushes(sender)) == (1, 1)
    assert remaining is not None
    assert sender.releases_left == remaining - 1


def test_the_charge_is_on_record_before_the_query_runs() -> None:
    sender = releaser(plan(z=1.5))
    counts: list[int] = []

    def look() -> Clipped:
        counts.append(pushes(sender))
        return query()

    sender.release(1.0, look)
    assert counts == [1]


@pytest.mark.parametrize("clip", [0.0, 0.0999, 100.1, -1.0, math.nan, math.inf, -math.inf, 5e-324])
def test_a_clip_outside_the_bounds_is_refused_before_the_charge(clip: float) -> None:
    sender, bomb = releaser(plan()), Bomb()
    with pytest.raises(PrivacyError, match=r"clip=.* allows \[0\.1, 100\.0\]") as refused:
        sender.release(clip, bomb)
    assert (bomb.called, pushes(sender)) == (0, 0)
    assert not isinstance(refused.value, BudgetSpent)


@pytest.mark.parametrize("clip", [0.1, 100.0])
def test_the_bounds_themselves_are_allowed(clip: float) -> None:
    assert releaser(plan()).release(clip, lambda: query(clip)).clip == clip


@pytest.mark.parametrize("sensitivity", [1.0001, math.inf, math.nan])
def test_a_sum_more_sensitive_than_promised_is_refused_and_charged(sensitivity: float) -> None:
    sender = releaser(plan())
    with pytest.raises(PrivacyError, match="sensitivity="):
        sender.release(1.0, lambda: query(sensitivity))
    assert pushes(sender) == 1


def test_the_budget_ends_after_exactly_the_certified_pushes() -> None:
    budget = plan(q=0.25, z=4.0, epsilon=1.0)
    most = certified_pushes(1.0, 1e-5, 0.25, 4.0)
    sender, bomb = releaser(budget, seed=None), Bomb()
    assert sender.releases_left == most > 1
    for _ in range(most):
        sender.release(1.0, query)
    with pytest.raises(BudgetSpent, match=r"^epsilon=1\.0"):
        sender.release(1.0, bomb)
    assert (bomb.called, pushes(sender)) == (0, most)


def test_a_new_process_goes_on_where_the_old_one_stopped() -> None:
    ledger, budget = Ledger(":memory:", "data"), plan(q=0.25, z=4.0, epsilon=1.0)
    first = releaser(budget, seed=None, ledger=ledger)
    first.release(1.0, query)
    assert first.releases_left is not None
    assert releaser(budget, seed=None, ledger=ledger).releases_left == first.releases_left


def test_a_dataset_that_was_released_without_noise_has_no_budget_left() -> None:
    ledger = Ledger(":memory:", "data")
    releaser(plan("none", z=0.0), seed=None, ledger=ledger).release(1.0, query)
    with pytest.raises(BudgetSpent):
        releaser(plan(), seed=None, ledger=ledger).release(1.0, Bomb())


# -- what is on record -----------------------------------------------------------------------------


def test_a_release_carries_the_history_with_itself_in_it() -> None:
    sender = releaser(plan(q=0.25, z=4.0), seed=None)
    assert sender.release(1.0, query).spent == (Spend(0.25, 4.0, 1),)
    assert sender.release(1.0, query).spent == (Spend(0.25, 4.0, 2),)


def test_seeded_noise_is_on_record_as_none_and_has_no_limit() -> None:
    sender = releaser(plan(z=1.5), seed=3)
    assert sender.releases_left is None
    assert sender.release(1.0, query).spent == (Spend(0.25, 0.0, 1),)


@pytest.mark.parametrize("mechanism", ["none", "paper"])
def test_mechanisms_without_a_guarantee_are_on_record_as_no_noise(mechanism: Any) -> None:
    sender = releaser(plan(mechanism, z=9.0), seed=None)
    assert sender.releases_left is None
    assert sender.release(1.0, query).spent == (Spend(0.25, 0.0, 1),)


# -- the value -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "clip", "z"), [(4.0, 1.0, 1.0), (10.0, 3.0, 0.5)])
def test_what_is_released_is_sum_plus_noise_over_the_public_batch_size(
    batch: float, clip: float, z: float
) -> None:
    total, sender = torch.full((40_000,), 7.0), releaser(plan(batch=batch, z=z))
    vector = sender.release(clip, lambda: Clipped(total, clip)).vector
    std = z * clip / batch
    assert vector.dtype == torch.float32
    assert float(vector.mean()) == pytest.approx(7.0 / batch, abs=5 * std / 200)
    assert float(vector.std()) == pytest.approx(std, rel=0.02)  # 4 standard deviations


def test_the_denominator_is_the_same_whatever_was_drawn() -> None:
    for rows in (0, 1, 400):
        sender = releaser(plan(batch=4.0, z=1e-3))
        total = torch.full((1000,), float(rows))
        vector = sender.release(1.0, lambda total=total: Clipped(total, 1.0)).vector  # type: ignore[misc]
        assert float(vector.mean()) == pytest.approx(rows / 4.0, abs=1e-3)


def test_without_noise_the_sum_comes_out_as_it_is() -> None:
    assert torch.equal(
        releaser(plan("none", z=0.0)).release(1.0, lambda: Clipped(TWO, math.inf)).vector, TWO
    )


def test_paper_noise_is_added_to_the_given_part_only() -> None:
    sender = releaser(plan("paper", z=0.0))
    vector = sender.release(
        1.0, lambda: Clipped(torch.zeros(10), math.inf), paper_dims=slice(0, 4)
    ).vector
    assert bool((vector[:4] != 0).all())
    assert vector[4:].tolist() == [0.0] * 6


def test_a_calibrated_plan_covers_its_pushes_and_no_fewer() -> None:
    calibrated = Plan.calibrated(
        epsilon=2.0,
        delta=1e-5,
        pushes=200,
        sampling_rate=0.05,
        batch=12.0,
        clip_min=0.1,
        clip_max=10.0,
    )
    remaining = calibrated.pushes_left(())
    assert remaining is not None
    assert 200 <= remaining < 205
    assert (calibrated.mechanism, calibrated.batch, calibrated.sampling_rate) == (
        "gaussian",
        12.0,
        0.05,
    )


def test_the_noise_variance_is_what_a_push_measures() -> None:
    for noisy_plan in (plan(z=2.0, batch=8.0), plan("paper", z=0.0, batch=8.0, paper_epsilon=0.5)):
        sender = Releaser(noisy_plan, Ledger(":memory:", "data"), Random(5))
        size, runs = 50, 4000
        pushed = [
            sender.release(1.0, lambda: Clipped(torch.zeros(50), 1.0)).vector for _ in range(runs)
        ]
        squares = [float(vector.square().sum()) for vector in pushed]
        assert sum(squares) / runs == pytest.approx(noisy_plan.noise_variance(size), rel=0.15)


# -- how many rows there may be --------------------------------------------------------------------


def test_the_size_of_a_batch_is_a_function_of_public_numbers() -> None:
    usual = plan(q=0.01, batch=10.0)
    assert usual.most_rows == 1250  # a quarter more than 10 / 0.01
    assert usual.slots == padded_size(1250, 0.01)
    assert dataclasses.replace(usual, rows_max=4000).slots == padded_size(4000, 0.01)


def test_an_edge_with_more_rows_than_its_shapes_are_made_for_takes_no_part() -> None:
    usual = plan(q=0.01, batch=10.0)
    usual.check_rows(1250)
    with pytest.raises(PrivacyError, match=r"^rows_max=1250: ") as refused:
        usual.check_rows(1251)
    assert "1251" not in str(refused.value)  # how many there are is private
    dataclasses.replace(usual, mechanism="none").check_rows(10**9)


def test_integers_that_do_not_fit_32_bits_are_refused_before_a_row_is_seen() -> None:
    large = plan("discrete_gaussian", q=1.0, batch=400_000.0)
    large.check_rows(1)
    with pytest.raises(PrivacyError, match=r"^batch=500000\.0: .* 32 bits"):
        dataclasses.replace(large, batch=500_000.0).check_rows(1)


def test_every_release_draws_from_a_key_of_its_own() -> None:
    door = releaser(plan(epsilon=100.0), seed=None)
    streams: list[object] = []  # kept, so that no two have one address

    def draw() -> Clipped:
        streams.append(door.random._stream)
        return query()

    door.release(1.0, draw)
    door.release(1.0, draw)
    door.release_steps(Steps(1.0, 3, TWO, torch.add), lambda params: draw())
    assert len({id(stream) for stream in streams}) == 5
