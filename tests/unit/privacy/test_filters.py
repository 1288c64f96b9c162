"""The Rényi filter: whatever the schedule does, what was accepted stays within (ε, δ)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import (
    ORDERS,
    Spend,
    certified_pushes,
    epsilon_pld,
    epsilon_rdp,
    merged,
    rdp_vector,
)
from tacit.privacy.accounting.filters import RenyiFilter

EPSILON, DELTA = 2.0, 1e-5
# Few distinct (q, z): each costs the accountant 20 ms once.
CHOICES = [
    Spend(q, z, 1, mechanism)
    for q, z, mechanism in (
        (0.02, 1.0, "gaussian"),
        (0.02, 2.5, "gaussian"),
        (0.1, 1.5, "discrete_gaussian"),
        (0.3, 4.0, "gaussian"),
        (0.05, 3.0, "knorm"),
        (1.0, 40.0, "gaussian"),
    )
]
SEQUENCES = st.lists(
    st.tuples(st.sampled_from(CHOICES), st.integers(1, 200)), min_size=1, max_size=25
)


def planned() -> RenyiFilter:
    return RenyiFilter.planned(EPSILON, DELTA, 0.02, 1.0)


@settings(max_examples=40, deadline=None)
@given(SEQUENCES)
def test_no_adaptive_sequence_passes_the_budget(sequence: list[tuple[Spend, int]]) -> None:
    filter_, accepted = planned(), []
    for choice, count in sequence:
        spend = Spend(choice.sampling_rate, choice.noise_multiplier, count, choice.mechanism)
        if filter_.accepts(spend):
            filter_.charge(spend)
            accepted.append(spend)
        else:
            with pytest.raises(BudgetSpent):
                filter_.charge(spend)
    assert epsilon_rdp(accepted, DELTA) <= EPSILON


def test_the_worst_adversary_fills_the_budget_and_no_more() -> None:
    # Dear releases first, then whatever still fits: the total comes close to ε, and stays below it.
    filter_, accepted = planned(), []
    for choice in sorted(CHOICES, key=lambda row: -rdp_vector(row)[ORDERS.index(filter_.order)]):
        while filter_.accepts(choice):
            filter_.charge(choice)
            accepted.append(choice)
    spent = epsilon_rdp(merged(accepted), DELTA)
    assert 0.9 * EPSILON < spent <= EPSILON
    assert epsilon_pld(merged(accepted), DELTA) <= spent
    assert filter_.spent > 0.99 * filter_.budget


@settings(max_examples=20, deadline=None)
@given(SEQUENCES)
def test_refusal_is_for_ever(sequence: list[tuple[Spend, int]]) -> None:
    filter_, refused = planned(), []
    for choice, count in sequence:
        if filter_.accepts(choice):
            filter_.charge(
                Spend(choice.sampling_rate, choice.noise_multiplier, 1, choice.mechanism)
            )
        bulk = Spend(choice.sampling_rate, choice.noise_multiplier, 20 * count, choice.mechanism)
        refused += [] if filter_.accepts(bulk) else [bulk]
        assert not any(filter_.accepts(spend) for spend in refused)


def test_a_refused_release_costs_nothing() -> None:
    filter_ = planned()
    before = filter_.spent
    with pytest.raises(BudgetSpent, match=r"^order \d+: 0 of "):
        filter_.charge(Spend(0.02, 1.0, 10**6))
    assert filter_.spent == before
    assert filter_.accepts(CHOICES[0])


def count_of(filter_: RenyiFilter, choice: Spend) -> int:
    low, high = 0, 1 << 20
    while high - low > 1:
        middle = (low + high) // 2
        fits = filter_.accepts(
            Spend(choice.sampling_rate, choice.noise_multiplier, middle, choice.mechanism)
        )
        low, high = (middle, high) if fits else (low, middle)
    return low


@pytest.mark.parametrize(
    "choice", CHOICES, ids=lambda row: f"{row.mechanism}-{row.sampling_rate}-{row.noise_multiplier}"
)
def test_the_planned_order_is_the_best_for_the_plan(choice: Spend) -> None:
    q, z, mechanism = choice.sampling_rate, choice.noise_multiplier, choice.mechanism
    chosen = RenyiFilter.planned(EPSILON, DELTA, q, z, mechanism)
    most = count_of(chosen, choice)
    others = []
    for order in ORDERS:
        with contextlib.suppress(PrivacyError):  # a low order leaves no budget
            others.append(RenyiFilter(EPSILON, DELTA, order))
    assert most == max(count_of(other, choice) for other in others) > 0
    # Adaptivity costs: fewer than the fixed schedule's certified count, but not absurdly fewer.
    assert 0.3 * certified_pushes(EPSILON, DELTA, q, z, (), mechanism) < most
    assert most <= certified_pushes(EPSILON, DELTA, q, z, (), mechanism)


def test_what_was_spent_before_counts() -> None:
    before = (Spend(0.02, 1.0, 100), Spend(0.05, 3.0, 2, "knorm"))
    fresh, later = planned(), RenyiFilter.planned(EPSILON, DELTA, 0.02, 1.0, history=before)
    assert count_of(later, CHOICES[0]) < count_of(fresh, CHOICES[0])
    assert later.spent == pytest.approx(
        sum(row.count * rdp_vector(row)[ORDERS.index(later.order)] for row in before)
    )


def test_a_release_without_noise_is_never_accepted() -> None:
    filter_ = planned()
    assert not filter_.accepts(Spend(0.02, 0.0, 1))
    with pytest.raises(PrivacyError, match=r"^epsilon=2.0"):
        RenyiFilter.planned(EPSILON, DELTA, 0.02, 1.0, history=(Spend(0.02, 0.0, 1),))
    with pytest.raises(PrivacyError, match=r"noise_multiplier=0.0"):
        RenyiFilter.planned(EPSILON, DELTA, 0.02, 0.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-5), (2.0, 1e-14), (1.0, 1e-300)])
def test_a_budget_that_pays_for_nothing_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(PrivacyError, match="pays for no release"):
        RenyiFilter.planned(epsilon, delta, 0.02, 1.0)


def test_an_order_must_be_one_that_is_accounted() -> None:
    with pytest.raises(ValueError, match="not in list"):
        RenyiFilter(EPSILON, DELTA, 65)
