"""μ against its definition, against dp-accounting and against the PLD accountant."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.privacy.accounting import Spend, epsilon_pld, gdp

# reference/privacy.md §6: ε of μ-GDP at δ = 1e-5.
TABLE = {0.5: 1.99, 1: 4.38, 2: 10.0, 3: 16.7, 5: 33.1, 10: 91.8, 20: 284}


@pytest.mark.parametrize(("mu", "epsilon"), TABLE.items())
def test_epsilon_is_that_of_the_reference(mu: float, epsilon: float) -> None:
    assert gdp.epsilon(mu, 1e-5) == pytest.approx(epsilon, rel=5e-3)
    assert gdp.epsilon(mu, 1e-5) == pytest.approx(get_epsilon_gaussian(1 / mu, 1e-5), rel=1e-4)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.5, 1.0), (2.0, 1.0), (3.0, 0.4)])
def test_delta_is_the_gap_between_the_error_curves(epsilon: float, mu: float) -> None:
    # (14): δ(ε) = sup over tests of TPR - e^ε·FPR of N(0, 1) against N(μ, 1).
    thresholds = np.linspace(-6, 12, 18_001)
    gaps = stats.norm.sf(thresholds - mu) - math.exp(epsilon) * stats.norm.sf(thresholds)
    assert gdp.delta(mu, epsilon) == pytest.approx(float(gaps.max()), abs=1e-6)


@pytest.mark.parametrize(("z", "count"), [(2.0, 1), (0.7, 1), (5.0, 30), (20.0, 100), (8.0, 7)])
def test_releases_compose_as_the_square_root_and_pld_agrees(z: float, count: int) -> None:
    history = (Spend(1.0, z, count),)
    assert gdp.mu(history) == pytest.approx(math.sqrt(count) / z)
    exact, rounded = gdp.epsilon(gdp.mu(history), 1e-5), epsilon_pld(history, 1e-5)
    assert (
        exact <= rounded + 1e-6 <= exact * 1.01 + 0.01
    )  # PLD rounds pessimistically, a little at each release


def test_parties_compose_as_the_square_root() -> None:
    assert gdp.compose([3.0, 4.0]) == 5.0
    assert gdp.compose([]) == 0.0
    both = (Spend(1.0, 2.0, 1), Spend(1.0, 3.0, 4))
    assert gdp.compose([gdp.mu(both[:1]), gdp.mu(both[1:])]) == pytest.approx(gdp.mu(both))


def test_what_is_not_gaussian_has_no_mu() -> None:
    assert gdp.mu(()) == 0.0
    assert gdp.epsilon(0.0, 1e-5) == gdp.delta(0.0, 1.0) == 0.0
    assert math.isinf(gdp.mu((Spend(1.0, 0.0, 1),)))
    assert math.isinf(gdp.mu((Spend(1.0, 2.0, 1, "knorm"),)))
    assert gdp.mu((Spend(1.0, 0.0, 0),)) == 0.0
    assert math.isinf(gdp.epsilon(math.inf, 1e-5))
    assert gdp.delta(math.inf, 5.0) == 1.0


def test_a_subsampled_row_is_bounded_as_if_it_were_not() -> None:
    rows = (Spend(0.01, 1.0, 100),)
    assert gdp.epsilon(gdp.mu(rows), 1e-5) >= epsilon_pld(rows, 1e-5)


@settings(max_examples=25, deadline=None)
@given(epsilon=st.floats(0.01, 50), exponent=st.integers(2, 9))
def test_a_budget_pays_for_the_largest_mu_and_for_no_larger(epsilon: float, exponent: int) -> None:
    delta = 10.0**-exponent
    mu = gdp.mu_within(epsilon, delta)
    assert gdp.epsilon(mu, delta) <= epsilon
    assert gdp.epsilon(mu * 1.001, delta) > epsilon


def test_within_asks_pld_for_what_is_not_gaussian() -> None:
    gaussian, pure = Spend(1.0, 2.0, 1), Spend(1.0, 2.0, 1, "knorm")
    assert gdp.within((gaussian,), 2.0, 1e-5)
    assert not gdp.within((gaussian,), 1.9, 1e-5)
    assert gdp.within((pure,), 0.6, 1e-5)
    assert not gdp.within((pure,), 0.4, 1e-5)
    assert not gdp.within((gaussian, Spend(1.0, 0.0, 1)), 1e6, 1e-5)
