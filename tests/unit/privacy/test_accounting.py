"""Accounting against measured figures (reference/privacy.md 3.2 and 3.4), against Opacus and
against closed forms.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import pld as dp_pld
from dp_accounting import rdp as dp_rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from tacit.errors import PrivacyError
from tacit.privacy.accounting import (
    History,
    RunningRdp,
    Spend,
    calibrate,
    certified_pushes,
    epsilon_disjoint,
    epsilon_pld,
    epsilon_rdp,
    epsilon_shared,
    merged,
)
from tacit.privacy.accounting import epsilon as bounds
from tacit.privacy.accounting.epsilon import MULTIPLIER_STEP
from tacit.privacy.accounting.privacy_losses import ORDERS, amplified

DELTA = 1e-5


def one(q: float, z: float, count: int) -> History:
    return (Spend(q, z, count),)


@pytest.mark.parametrize(
    ("q", "z", "pld", "rdp"),
    [(0.004, 0.8, 1.975, 2.459), (0.004, 1.0, 1.164, 1.393), (0.0213, 2.463, 1.994, 2.173)],
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


# -- known answers: three independent accountants on the same histories ----------------------------

HISTORIES = [
    one(0.004, 0.8, 3000),
    one(0.05, 2.0, 500),
    one(0.02, 1.0, 200),
    one(0.001, 0.6, 5000),
    one(0.1, 3.0, 300),
    one(1.0, 20.0, 50),
    one(0.0213, 2.463, 3000),
    (*one(0.004, 1.0, 1000), *one(0.02, 1.5, 200)),
    (*one(0.01, 0.9, 50), *one(0.01, 1.2, 100), *one(0.01, 1.8, 400)),
    (*one(0.2, 6.0, 64), *one(0.05, 1.4, 16)),
]


@pytest.mark.parametrize(
    "history", HISTORIES, ids=lambda rows: "+".join(f"{r.count}x{r.noise_multiplier}" for r in rows)
)
def test_dp_accounting_and_opacus_agree(history: History) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant, RDPAccountant

        prv, rdp = PRVAccountant(), RDPAccountant()
        prv.history = rdp.history = [
            (row.noise_multiplier, row.sampling_rate, row.count) for row in history
        ]
        by_prv, by_rdp = prv.get_epsilon(DELTA), rdp.get_epsilon(DELTA)
    fine = dp_pld.PLDAccountant(value_discretization_interval=1e-4)
    integers = dp_rdp.RdpAccountant(ORDERS)
    for row in history:
        event = dpa.PoissonSampledDpEvent(
            row.sampling_rate, dpa.GaussianDpEvent(row.noise_multiplier)
        )
        fine.compose(event, row.count)
        integers.compose(event, row.count)
    pld = epsilon_pld(history, DELTA)
    assert pld == pytest.approx(by_prv, abs=0.02)
    assert 0 <= pld - fine.get_epsilon(DELTA) <= 0.01  # ours is coarser, and never below
    assert epsilon_rdp(history, DELTA) == pytest.approx(
        integers.get_epsilon(DELTA), rel=1e-5
    )  # the tail
    assert (
        pld <= by_rdp <= epsilon_rdp(history, DELTA) + 1e-3
    )  # Opacus has the fractional orders as well


def test_the_agreement_would_notice_three_percent_of_noise() -> None:
    spent = [epsilon_pld(one(0.004, z, 3000), DELTA) for z in (0.8, 0.8 * 0.97)]
    assert spent[1] - spent[0] > 2 * 0.02


# -- K-norm: pure, against closed forms ------------------------------------------------------------


def kov(epsilon: float, count: int, delta: float) -> float:
    """Return the optimal ε of `count` (ε, 0) releases, by its binomial sum.

    The theorem is of Kairouz, Oh and Viswanath (2015).
    """
    losses = (2 * np.arange(count + 1) - count) * epsilon
    chances = binom.pmf(np.arange(count + 1), count, 1 / (1 + math.exp(-epsilon)))
    low, high = 0.0, count * epsilon
    for _ in range(60):
        middle = (low + high) / 2
        enough = float((chances * -np.expm1(np.minimum(0.0, middle - losses))).sum()) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


@pytest.mark.parametrize(
    ("q", "z"), [(1.0, 10.0), (1.0, 2.0), (0.02, 4.0), (0.02, 47.3), (0.3, 0.7)]
)
@pytest.mark.parametrize("count", [1, 7, 300, 3000])
def test_knorm_is_the_optimal_composition_of_pure_releases(q: float, z: float, count: int) -> None:
    exact = kov(amplified(1 / z, q), count, DELTA)
    if exact < 12:  # beyond, the tail of the padded batch takes its share of δ
        spent = epsilon_pld([Spend(q, z, count, "knorm")], DELTA)
        assert exact <= spent <= exact * 1.001 + 1e-6
        assert spent <= epsilon_rdp([Spend(q, z, count, "knorm")], DELTA)


def test_the_measured_knorm_figures() -> None:
    ten = [Spend(1.0, 10.0, count, "knorm") for count in (3000, 5000)]
    assert epsilon_pld(ten[:1], DELTA) == pytest.approx(
        math.inf
    )  # 37.5 (privacy.md 1.1, P7) is past what δ can carry
    assert kov(0.1, 3000, DELTA) == pytest.approx(37.5, abs=0.05)
    assert kov(0.1, 5000, DELTA) == pytest.approx(54.3, abs=0.05)


@pytest.mark.parametrize(
    "other", [Spend(0.02, 1.5, 100), Spend(0.02, 9.0, 40, "knorm"), Spend(1.0, 9.5, 3, "knorm")]
)
def test_knorm_beside_other_rows_costs_more_than_alone_and_less_than_the_sum(other: Spend) -> None:
    alone = Spend(0.02, 4.0, 300, "knorm")
    both = epsilon_pld([alone, other], DELTA)
    assert epsilon_pld([alone], DELTA) < both
    assert both < epsilon_pld([alone], DELTA / 2) + epsilon_pld([other], DELTA / 2)


def test_sampling_amplifies_a_pure_release() -> None:
    for epsilon in (1e-9, 1e-3, 0.3, 0.999, 1.0, 3.0, 30.0):
        assert amplified(epsilon, 1.0) == pytest.approx(epsilon, rel=1e-12)
        spent = [amplified(epsilon, q) for q in (1e-6, 1e-3, 0.1, 0.5, 1.0)]
        assert spent == sorted(spent)
        assert spent[0] > 0
    assert amplified(1.0, 0.01) == pytest.approx(math.log(1 + 0.01 * (math.e - 1)))
    assert amplified(1e-12, 0.01) == pytest.approx(1e-14, rel=1e-9)  # not rounded to nothing
    assert amplified(1000.0, 0.5) == pytest.approx(1000 + math.log(0.5))  # no overflow


@pytest.mark.parametrize(("q", "epsilon"), [(0.01, 0.5), (0.3, 2.0), (0.9, 1.0)])
def test_amplification_is_what_randomised_response_shows(q: float, epsilon: float) -> None:
    # The worst pure mechanism, on a Poisson sample: both likelihood ratios of the mixture, one of
    # them tight.
    yes = 1 / (1 + math.exp(-epsilon))
    ratios = [((1 - q) * (1 - p) + q * p) / (1 - p) for p in (yes, 1 - yes)]
    assert max(abs(math.log(ratio)) for ratio in ratios) == pytest.approx(
        amplified(epsilon, q), rel=1e-12
    )


# -- the discrete Gaussian -------------------------------------------------------------------------


@pytest.mark.parametrize("std", [1.0, 2.0, 4.0, 8.0])
def test_the_discrete_gaussian_is_this_close_to_a_rounded_one(std: float) -> None:
    k = np.arange(-int(8 * std) - 1, int(8 * std) + 2)
    weights = np.exp(-(k**2) / (2 * std**2))
    discrete = weights / weights.sum()
    scale = math.sqrt(std**2 - 1 / 12)
    below = -np.abs(k)  # the lower tail: no cancellation
    rounded = norm.cdf((below + 0.5) / scale) - norm.cdf((below - 0.5) / scale)
    ratio = discrete / rounded - 1
    divergence = float(
        (rounded * ((1 + ratio) * np.log1p(ratio) - ratio)).sum()
    )  # KL, every term >= 0
    assert 0.9 * 1.44e-6 <= divergence * std**8 <= bounds._LATTICE_KL


def test_the_discrete_gaussian_costs_what_the_gaussian_does_and_never_less() -> None:
    for q, z, count in ((0.004, 0.8, 3000), (0.0213, 2.463, 3000), (1.0, 5.0, 10)):
        discrete = [Spend(q, z, count, "discrete_gaussian")]
        assert 0 <= epsilon_pld(discrete, DELTA) - epsilon_pld(one(q, z, count), DELTA) < 1e-4
        assert epsilon_rdp(discrete, DELTA) == epsilon_rdp(one(q, z, count), DELTA)
        assert epsilon_pld(discrete, DELTA) < epsilon_rdp(discrete, DELTA)


def test_a_coarse_grid_is_paid_for() -> None:
    # z = 0.1 leaves 410 steps: far from a line. PLD claims nothing there that RDP, exact on the
    # lattice, does not.
    coarse = [Spend(0.001, 0.25, 1000, "discrete_gaussian")]
    assert epsilon_pld(coarse, DELTA) >= epsilon_pld(one(0.001, 0.25, 1000), DELTA)
    assert epsilon_pld(coarse, DELTA) <= epsilon_rdp(coarse, DELTA)


# -- growing and joined histories ------------------------------------------------------------------


def test_a_running_sum_is_the_whole_history() -> None:
    running, rows = RunningRdp(), []
    assert running.epsilon(DELTA) == 0.0
    for q, z, count, mechanism in (
        (0.02, 1.0, 3, "gaussian"),
        (0.02, 8.0, 40, "knorm"),
        (0.1, 2.0, 5, "gaussian"),
    ):
        for _ in range(count):
            running.add(Spend(q, z, 1, mechanism))
        rows.append(Spend(q, z, count, mechanism))
        assert running.epsilon(DELTA) == pytest.approx(epsilon_rdp(rows, DELTA), rel=1e-12)
    running.add(Spend(0.02, 0.0, 1))
    assert running.epsilon(DELTA) == math.inf


def test_edges_of_different_people_cost_the_largest() -> None:
    edges = [one(0.02, 1.5, 300), one(0.02, 1.5, 100), (Spend(0.02, 9.0, 50, "knorm"),), ()]
    assert epsilon_disjoint(edges, DELTA) == epsilon_pld(edges[0], DELTA)
    assert epsilon_disjoint([*edges, one(0.1, 0.0, 1)], DELTA) == math.inf
    assert epsilon_disjoint([], DELTA) == 0.0


def test_the_same_person_at_several_parties_pays_for_all() -> None:
    parties = [one(0.02, 1.5, 300), one(0.02, 1.5, 100), one(1.0, 20.0, 4)]
    shared = epsilon_shared(parties, DELTA)
    assert shared == epsilon_pld([*one(0.02, 1.5, 400), *one(1.0, 20.0, 4)], DELTA)
    assert (
        epsilon_disjoint(parties, DELTA)
        < shared
        < sum(epsilon_pld(party, DELTA / 3) for party in parties)
    )


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
        assert (
            max(account(low, DELTA), account(high, DELTA))
            < both
            < account(low, DELTA) + account(high, DELTA)
        )
        assert both == account([*high, *low], DELTA)


def test_merging_adds_equal_rows_and_drops_empty_ones() -> None:
    rows = [Spend(0.2, 1.0, 2), Spend(0.1, 1.0, 1), Spend(0.2, 1.0, 3), Spend(0.3, 1.0, 0)]
    assert merged(rows) == (Spend(0.1, 1.0, 1), Spend(0.2, 1.0, 5))


def test_epsilon_never_falls_as_releases_are_added() -> None:
    for account in (epsilon_pld, epsilon_rdp):
        spent = [account(one(0.01, 1.0, count), DELTA) for count in (1, 2, 10, 100, 101, 1000)]
        assert spent == sorted(spent)
        assert spent[-1] > spent[0]


# -- the tail of the padded batch ------------------------------------------------------------------


def _forget() -> None:
    """Empty the accountant's caches, whose keys do not have the tail."""
    bounds._epsilon_rdp.cache_clear()
    bounds._epsilon_pld.cache_clear()


@pytest.fixture
def with_tail(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Set the probability that a padded batch cuts a draw, for one test."""

    def put(tail: float) -> None:
        monkeypatch.setattr(bounds, "TAIL", tail)
        _forget()

    yield put
    _forget()


def test_the_delta_of_the_padded_tail_is_set_aside(with_tail: Callable[[float], None]) -> None:
    history = one(0.02, 1.0, 500)
    plain = epsilon_rdp(history, DELTA)
    with_tail(1e-10)
    aside = (
        (1 + math.exp(epsilon_rdp(history, DELTA / 2))) * 1e-10 * 500
    )  # an under-estimate of what is set aside
    assert epsilon_rdp(history, DELTA) > plain
    with_tail(0.0)
    assert epsilon_rdp(history, DELTA - 0.5 * aside) > epsilon_rdp(history, DELTA)


def test_nothing_is_claimed_where_the_tail_does_not_fit_into_delta() -> None:
    for account in (epsilon_pld, epsilon_rdp):
        assert account(one(0.01, 1.0, 1000), 1e-13) == math.inf
        assert account(one(1.0, 0.2, 10), DELTA) == math.inf


@pytest.mark.parametrize(
    "history",
    [
        one(1.0, 1e-300, 1),
        one(1.0, 1e-2, 1),
        one(1.0, 0.1, 10**6),
        one(0.01, 1.0, 2**64 - 1),
        one(0.5, 1e300, 7),
        one(1e-6, 100.0, 2**40),
    ],
)
def test_any_history_that_the_wire_lets_in_has_an_answer_at_once(history: History) -> None:
    assert 0 <= epsilon_pld(history, DELTA) <= epsilon_rdp(history, DELTA)


# -- planning --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "pushes", "q"), [(2.0, 3000, 0.0213), (1.0, 50, 1.0), (8.0, 500, 0.1)]
)
def test_calibrated_noise_is_the_least_that_keeps_the_target(
    epsilon: float, pushes: int, q: float
) -> None:
    z = calibrate(epsilon, DELTA, pushes, q)
    assert epsilon_pld(one(q, z, pushes), DELTA) <= epsilon
    assert epsilon_pld(one(q, z - MULTIPLIER_STEP, pushes), DELTA) > epsilon
    assert z / MULTIPLIER_STEP == pytest.approx(round(z / MULTIPLIER_STEP))


def test_the_measured_multiplier_for_epsilon_2() -> None:
    assert calibrate(2.0, DELTA, 3000, 256 / 12_000) == pytest.approx(
        2.46, abs=0.01
    )  # privacy.md 1.3, b = 256


def test_a_target_that_no_noise_reaches_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"^epsilon=1e-06"):
        calibrate(1e-6, 1e-12, 10**6, 1.0)


def test_the_certified_count_is_exact_at_the_boundary() -> None:
    most = certified_pushes(2.0, DELTA, 0.004, 0.8)
    assert most == 3080  # privacy.md 3.2 d
    assert (
        epsilon_pld(one(0.004, 0.8, most), DELTA)
        <= 2.0
        < epsilon_pld(one(0.004, 0.8, most + 1), DELTA)
    )


def test_what_was_spent_before_lowers_the_certified_count() -> None:
    q, z = 0.05, 1.5
    most = certified_pushes(1.0, DELTA, q, z)
    assert certified_pushes(1.0, DELTA, q, z, one(q, z, most - 7)) == 7
    assert certified_pushes(1.0, DELTA, q, z, one(q, z, most)) == 0
    other = one(0.02, 3.0, 100)
    less = certified_pushes(1.0, DELTA, q, z, other)
    assert 0 < less < most
    assert (
        epsilon_pld([*other, Spend(q, z, less)], DELTA)
        <= 1.0
        < epsilon_pld([*other, Spend(q, z, less + 1)], DELTA)
    )


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


@lru_cache(maxsize=256)
def most(epsilon: float, q: float, z: float, mechanism: str) -> int:
    return certified_pushes(epsilon, DELTA, q, z, (), mechanism)


@settings(max_examples=4, deadline=None)
@given(
    st.sampled_from((0.5, 1.0, 3.0)),
    st.sampled_from((0.02, 0.05)),
    st.sampled_from((1.5, 2.5)),
    st.sampled_from(("gaussian", "discrete_gaussian", "knorm")),
)
def test_the_certified_count_is_monotone_and_exact(
    epsilon: float, q: float, z: float, mechanism: str
) -> None:
    count = most(epsilon, q, z, mechanism)
    assert count <= most(1.2 * epsilon, q, z, mechanism)
    assert count <= most(epsilon, q, 1.3 * z, mechanism)
    assert count <= most(epsilon, 0.8 * q, z, mechanism)
    spent = [epsilon_pld([Spend(q, z, pushes, mechanism)], DELTA) for pushes in (count, count + 1)]
    assert spent[0] <= epsilon < spent[1]


# -- histories that nobody honest has --------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian", "knorm"])
@pytest.mark.parametrize("rate", [5e-324, 1e-20, 1e-7, 1e-6])
def test_a_tiny_rate_has_an_answer_not_below_its_own(mechanism: str, rate: float) -> None:
    epsilon = epsilon_pld([Spend(rate, 1.0, 1, mechanism)], 1e-5)
    assert 0 <= epsilon <= epsilon_pld([Spend(1e-3, 1.0, 1, mechanism)], 1e-5)


def test_a_thousand_different_rows_are_bounded_without_composing_each() -> None:
    rows = [Spend(1e-3, 1 + i / 1000, 1) for i in range(1000)]
    worst = [Spend(1e-3, 1.0, 1000)]
    assert epsilon_pld(rows, 1e-5) == epsilon_pld(worst, 1e-5)
    assert epsilon_rdp(rows, 1e-5) == epsilon_rdp(worst, 1e-5)
    few = [
        Spend(1e-3, 1 + i / 10, 50) for i in range(20)
    ]  # above 16 rows: RDP's, which is the larger
    assert epsilon_pld(few, 1e-5) == epsilon_rdp(few, 1e-5) <= epsilon_rdp(rows, 1e-5)
