"""The lifetime of some data: a filter at one order, held against dp-accounting."""

from __future__ import annotations

import math
import random

import dp_accounting as dpa
import pytest
from dp_accounting import rdp

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import ORDERS, TAIL, History, Lifetime, Spend, epsilon_pld, merged

DELTA = 1e-5
KINDS = [
    Spend(0.05, 2.0, 1),
    Spend(0.02, 1.5, 1, "discrete_gaussian"),
    Spend(0.25, 6.0, 1),
    Spend(1.0, 40.0, 1),
]


def spent_fully(lifetime: Lifetime, seed: int) -> History:
    """Return what a ledger has after random charges, until the lifetime pays for none of them."""
    chance, history = random.Random(seed), merged([])
    kinds = list(KINDS)
    while kinds:
        kind = chance.choice(kinds)
        count = chance.randint(1, 40)
        spend = Spend(kind.sampling_rate, kind.noise_multiplier, count, kind.mechanism)
        try:
            lifetime.check(history, spend)
        except BudgetSpent:
            assert lifetime.left(history, kind) < count
            if not lifetime.left(history, kind):
                kinds.remove(kind)
            continue
        assert lifetime.left(history, kind) >= count
        history = merged([*history, spend])
    return history


def by_dp_accounting(history: History, orders: list[int]) -> rdp.RdpAccountant:
    accountant = rdp.RdpAccountant(orders, dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for row in history:
        gaussian = dpa.GaussianDpEvent(row.noise_multiplier)
        accountant.compose(dpa.PoissonSampledDpEvent(row.sampling_rate, gaussian), row.count)
    return accountant


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0, 8.0])
def test_what_a_lifetime_has_paid_is_within_it_by_dp_accounting(epsilon: float) -> None:
    lifetime = Lifetime.begun(epsilon, DELTA)
    for seed in range(3):
        history = spent_fully(lifetime, seed)
        accountant = by_dp_accounting(history, [lifetime.order])
        # At its order it has paid for what dp-accounting counts,
        filter_ = lifetime._filter(history)
        assert filter_.spent == pytest.approx(float(accountant.rdp[0]), rel=1e-9)
        # which is within (ε, δ), and nearly all of it;
        assert 0.97 * epsilon < float(accountant.get_epsilon(DELTA)) <= epsilon
        # and the joint PLD, as of parameters fixed in advance, is below.
        assert epsilon_pld(history, DELTA) <= epsilon


def test_the_bound_at_the_order_is_what_dp_accounting_makes_of_it() -> None:
    for epsilon in (0.5, 2.0, 8.0):
        for order in ORDERS:
            try:
                filter_ = Lifetime(epsilon, DELTA, order)._filter(())
            except PrivacyError:
                continue
            back, _ = rdp.compute_epsilon([order], [filter_.budget], 0.9 * DELTA)
            assert back == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("z", [15.0, 40.0])
def test_the_order_pays_for_the_most_gaussian_releases_of_any(epsilon: float, z: float) -> None:
    spend = Spend(1.0, z, 1)
    counts = []
    for order in ORDERS:
        try:
            counts.append(Lifetime(epsilon, DELTA, order).left((), spend))
        except PrivacyError:
            counts.append(0)
    assert Lifetime.begun(epsilon, DELTA).left((), spend) == max(counts)


def test_the_order_is_a_function_of_two_public_numbers() -> None:
    orders = [Lifetime.begun(epsilon, DELTA).order for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0, 10.0)]
    assert orders == [32, 18, 10, 6, 4, 4]


def test_a_release_without_noise_before_it_leaves_nothing() -> None:
    lifetime = Lifetime.begun(4.0, DELTA)
    assert lifetime.left((Spend(0.1, 0.0, 1),), KINDS[0]) == 0
    with pytest.raises(BudgetSpent, match=r"^lifetime_epsilon: "):
        lifetime.check((Spend(0.1, 0.0, 1),), KINDS[0])


@pytest.mark.parametrize(("epsilon", "order"), [(1.0, 4), (0.001, 512)])
def test_a_bound_that_leaves_nothing_at_its_order_is_refused(epsilon: float, order: int) -> None:
    with pytest.raises(PrivacyError, match="pays for no release"):
        Lifetime(epsilon, DELTA, order)


@pytest.mark.parametrize("order", [3, 4, 6, 10])
@pytest.mark.parametrize("spend", [*KINDS, Spend(1.0, 100.0, 1)])
def test_a_larger_bound_never_pays_for_less_at_the_same_order(order: int, spend: Spend) -> None:
    counts = []
    for epsilon in (4.0, 6.0, 8.0, 10.0, 10.5, 11.0, 12.0, 16.0, 30.0, 1e3, float("inf")):
        try:
            counts.append(Lifetime(epsilon, DELTA, order).left((), spend))
        except PrivacyError:
            counts.append(0)
    assert counts == sorted(counts)
    assert counts[-1] > 100


@pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-8])
def test_a_larger_bound_never_begins_with_less(delta: float) -> None:
    spend = Spend(1.0, 100.0, 1)
    counts = [Lifetime.begun(e, delta).left((), spend) for e in (1.0, 4.0, 8.0, 12.0, 16.0, 30.0)]
    assert counts == sorted(counts)


@pytest.mark.parametrize("epsilon", [9.0, 12.0, 30.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_what_a_large_bound_pays_for_is_within_it_with_the_draws_it_may_cut(
    epsilon: float, delta: float
) -> None:
    lifetime = Lifetime.begun(epsilon, delta)
    for spend in (Spend(0.05, 2.0, 1), Spend(0.001, 40.0, 1)):
        count = lifetime.left((), spend)
        budget = lifetime._filter(()).budget
        epsilon_held, _ = rdp.compute_epsilon([lifetime.order], [budget], 0.9 * delta)
        assert epsilon_held <= epsilon + 1e-9
        assert count * TAIL * (1 + math.exp(epsilon_held)) <= 0.1 * delta * (1 + 1e-9)
