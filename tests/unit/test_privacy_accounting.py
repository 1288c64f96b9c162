"""Accounting against measured figures (reference/privacy.md 3.2 and 3.4) and against Opacus."""

from __future__ import annotations

import math
import warnings

import pytest

from tacit.errors import PrivacyError
from tacit.privacy import accounting
from tacit.privacy.accounting import (
    MULTIPLIER_STEP,
    History,
    Spend,
    calibrate,
    certified_pushes,
    epsilon_pld,
    epsilon_rdp,
    merged,
)

DELTA = 1e-5


def one(q: float, z: float, count: int) -> History:
    return (Spend(q, z, count),)


@pytest.mark.parametrize(
    ("q", "z", "pld", "rdp"), [(0.004, 0.8, 1.975, 2.459), (0.004, 1.0, 1.164, 1.393), (0.0213, 2.463, 1.994, 2.173)]
)
def test_the_measured_figures_at_3000_pushes(q: float, z: float, pld: float, rdp: float) -> None:
    assert pld <= epsilon_pld(one(q, z, 3000), DELTA) <= pld + 0.01
    assert epsilon_rdp(one(q, z, 3000), DELTA) == pytest.approx(rdp, abs=0.01)


def test_one_full_release_is_the_analytic_gaussian() -> None:
    for epsilon, z in ((0.1, 30.75), (0.5, 7.03), (1.0, 3.73)):  # privacy.md 1.3
        assert epsilon_pld(one(1.0, z, 1), DELTA) == pytest.approx(epsilon, rel=0.01)


@pytest.mark.parametrize("q", [0.004, 0.1, 1.0])
@pytest.mark.parametrize("z", [0.8, 4.0])
@pytest.mark.parametrize("count", [1, 300])
def test_pld_is_tighter_than_rdp(q: float, z: float, count: int) -> None:
    rdp, pld = epsilon_rdp(one(q, z, count), DELTA), epsilon_pld(one(q, z, count), DELTA)
    assert pld < 0.97 * rdp or rdp > 20 or rdp == 0


@pytest.mark.parametrize(("q", "z", "count"), [(0.004, 0.8, 3000), (0.05, 2.0, 500), (0.02, 1.0, 200)])
def test_opacus_agrees(q: float, z: float, count: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant, RDPAccountant

        prv, rdp = PRVAccountant(), RDPAccountant()
        prv.history = [(z, q, count)]
        rdp.history = [(z, q, count)]
        assert prv.get_epsilon(DELTA) == pytest.approx(epsilon_pld(one(q, z, count), DELTA), abs=0.02)
        assert rdp.get_epsilon(DELTA) <= epsilon_rdp(one(q, z, count), DELTA) + 0.01


def test_an_empty_history_costs_nothing() -> None:
    for history in ((), one(0.1, 1.0, 0)):
        assert epsilon_pld(history, DELTA) == epsilon_rdp(history, DELTA) == 0.0


def test_one_release_without_noise_costs_everything() -> None:
    history = (*one(0.004, 4.0, 10), *one(0.004, 0.0, 1))
    assert epsilon_pld(history, DELTA) == epsilon_rdp(history, DELTA) == math.inf


def test_histories_of_different_rates_add_up() -> None:
    low, high = one(0.004, 1.0, 1000), one(0.02, 1.5, 200)
    for account in (epsilon_pld, epsilon_rdp):
        both = account([*low, *high], DELTA)
        assert max(account(low, DELTA), account(high, DELTA)) < both < account(low, DELTA) + account(high, DELTA)
        assert both == account([*high, *low], DELTA)


def test_merging_adds_equal_rows_and_drops_empty_ones() -> None:
    rows = [Spend(0.2, 1.0, 2), Spend(0.1, 1.0, 1), Spend(0.2, 1.0, 3), Spend(0.3, 1.0, 0)]
    assert merged(rows) == (Spend(0.1, 1.0, 1), Spend(0.2, 1.0, 5))


def test_epsilon_never_falls_as_releases_are_added() -> None:
    for account in (epsilon_pld, epsilon_rdp):
        spent = [account(one(0.01, 1.0, count), DELTA) for count in (1, 2, 10, 100, 101, 1000)]
        assert spent == sorted(spent)
        assert spent[-1] > spent[0]


# -- the tail of the padded batch -----------------------------------------------------------------------------------


def test_the_delta_of_the_padded_tail_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    history = one(0.02, 1.0, 500)
    plain = epsilon_rdp(history, DELTA)
    monkeypatch.setattr(accounting, "TAIL", 1e-10)
    aside = (1 + math.exp(epsilon_rdp(history, DELTA / 2))) * 1e-10 * 500  # an under-estimate of what is set aside
    assert epsilon_rdp(history, DELTA) > plain
    monkeypatch.setattr(accounting, "TAIL", 0.0)
    assert epsilon_rdp(history, DELTA - 0.5 * aside) > epsilon_rdp(history, DELTA)


def test_nothing_is_claimed_where_the_tail_does_not_fit_into_delta() -> None:
    for account in (epsilon_pld, epsilon_rdp):
        assert account(one(0.01, 1.0, 1000), 1e-13) == math.inf
        assert account(one(1.0, 0.2, 10), DELTA) == math.inf


@pytest.mark.parametrize(
    "history",
    [
        one(1.0, 1e-300, 1), one(1.0, 1e-2, 1), one(1.0, 0.1, 10**6), one(0.01, 1.0, 2**64 - 1), one(0.5, 1e300, 7),
        one(1e-6, 100.0, 2**40),
    ],
)  # fmt: skip
def test_any_history_that_the_wire_lets_in_has_an_answer_at_once(history: History) -> None:
    assert 0 <= epsilon_pld(history, DELTA) <= epsilon_rdp(history, DELTA)


# -- planning -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "pushes", "q"), [(2.0, 3000, 0.0213), (1.0, 50, 1.0), (8.0, 500, 0.1)])
def test_calibrated_noise_is_the_least_that_keeps_the_target(epsilon: float, pushes: int, q: float) -> None:
    z = calibrate(epsilon, DELTA, pushes, q)
    assert epsilon_pld(one(q, z, pushes), DELTA) <= epsilon
    assert epsilon_pld(one(q, z - MULTIPLIER_STEP, pushes), DELTA) > epsilon
    assert z / MULTIPLIER_STEP == pytest.approx(round(z / MULTIPLIER_STEP))


def test_the_measured_multiplier_for_epsilon_2() -> None:
    assert calibrate(2.0, DELTA, 3000, 256 / 12_000) == pytest.approx(2.46, abs=0.01)  # privacy.md 1.3, b = 256


def test_a_target_that_no_noise_reaches_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"^epsilon=1e-06"):
        calibrate(1e-6, 1e-12, 10**6, 1.0)


def test_the_certified_count_is_exact_at_the_boundary() -> None:
    most = certified_pushes(2.0, DELTA, 0.004, 0.8)
    assert most == 3080  # privacy.md 3.2 d
    assert epsilon_pld(one(0.004, 0.8, most), DELTA) <= 2.0 < epsilon_pld(one(0.004, 0.8, most + 1), DELTA)


def test_what_was_spent_before_lowers_the_certified_count() -> None:
    q, z = 0.05, 1.5
    most = certified_pushes(1.0, DELTA, q, z)
    assert certified_pushes(1.0, DELTA, q, z, one(q, z, most - 7)) == 7
    assert certified_pushes(1.0, DELTA, q, z, one(q, z, most)) == 0
    other = one(0.02, 3.0, 100)
    less = certified_pushes(1.0, DELTA, q, z, other)
    assert 0 < less < most
    assert epsilon_pld([*other, Spend(q, z, less)], DELTA) <= 1.0 < epsilon_pld([*other, Spend(q, z, less + 1)], DELTA)


def test_more_budget_or_more_noise_or_fewer_rows_certify_more() -> None:
    base = certified_pushes(1.0, DELTA, 0.05, 1.5)
    assert certified_pushes(1.5, DELTA, 0.05, 1.5) > base
    assert certified_pushes(1.0, DELTA, 0.05, 2.0) > base
    assert certified_pushes(1.0, DELTA, 0.02, 1.5) > base
    assert certified_pushes(1.0, 1e-6, 0.05, 1.5) < base


def test_without_noise_or_after_a_release_without_noise_nothing_is_certified() -> None:
    assert certified_pushes(2.0, DELTA, 0.05, 0.0) == 0
    assert certified_pushes(2.0, DELTA, 0.05, 1.0, one(0.05, 0.0, 1)) == 0
    assert certified_pushes(0.01, DELTA, 1.0, 0.5) == 0
