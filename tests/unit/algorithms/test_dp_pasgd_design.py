"""DP-PASGD's optimal design against its paper: one test per equation, its two mistakes, and the
search.

Figures without a number of the paper are those of reference/privacy.md 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.algorithms.dp_pasgd import design, formulas
from tacit.algorithms.dp_pasgd.design import DesignedRun, plan
from tacit.algorithms.dp_pasgd.formulas import Numbers
from tacit.algorithms.dp_pasgd.problem import DesignProblem
from tacit.errors import ConfigError
from tacit.privacy.accounting import Spend, calibrate, epsilon_pld

WORKED: dict[str, Any] = {
    "epsilon": 10.0,
    "delta": 1e-4,
    "devices": 16,
    "batch": (256.0,),
    "lipschitz": 1.0,
    "dim": 103,
    "smoothness": 0.25,
    "strong_convexity": 0.01,
    "lr": 0.1,
    "c1": 100.0,
    "c2": 1.0,
    "resource": 1000.0,
}


def problem(**changes: Any) -> DesignProblem:
    return DesignProblem(**{**WORKED, **changes})


def at(*values: float) -> Numbers:
    return np.array(values, dtype=np.float64)


# -- the equations ---------------------------------------------------------------------------------


def test_eq_8_cost_counts_every_step_and_every_average() -> None:
    assert formulas.cost(problem(), at(8), at(22))[0] == 100 * 176 / 22 + 1 * 176 == 976


@pytest.mark.parametrize(
    ("K", "X", "G", "sigma"), [(1, 1, 1, 1.0), (176, 256, 1, 0.05), (99, 64, 3, 0.2)]
)
def test_eq_9_epsilon_of_k_steps(K: int, X: float, G: float, sigma: float) -> None:
    delta = 1e-4
    as_printed = 2 * K * G**2 / (X * sigma) ** 2 + 2 * G / (X * sigma) * math.sqrt(
        2 * K * math.log(1 / delta)
    )
    assert formulas.epsilon_zcdp(K, sigma * X / G, delta) == pytest.approx(as_printed, rel=1e-12)


def test_eq_9_is_lemmas_1_to_3() -> None:
    rho = sum(
        (2 / 4.0) ** 2 / (2 * 0.5**2) for _ in range(7)
    )  # Lemma 2 at Δ = 2G/X, X = 4, G = 1, σ = 0.5; Lemma 1
    assert formulas.epsilon_zcdp(7, 0.5 * 4, 1e-3) == pytest.approx(
        rho + 2 * math.sqrt(rho * math.log(1e3))
    )  # Lemma 3


def test_eq_12_as_printed() -> None:
    p = problem(gap=2.0, strong_convexity=0.2, lr=0.5)
    assert formulas.paper_bound(p, at(3), at(0.5))[0] == pytest.approx(0.9**3 * (2 - 0.5) / 3 + 0.5)


def test_eq_13_and_20_the_floor() -> None:
    p = problem(devices=2, batch=(10.0, 40.0), variance=0.3, lipschitz=2.0)
    z = 5.0
    sigmas = (z * 2 / 10, z * 2 / 40)
    spread = 0.3 + 103 / 2 * sum(s**2 for s in sigmas)
    rate = 0.1 * 0.25 + (0.1 * 0.25) ** 2 * (7 - 1) * 2
    assert formulas.variance_floor(p, at(7), at(z**2))[0] == pytest.approx(
        rate / (2 * 0.01 * 2) * spread
    )


def test_eq_21_every_feasible_pair_and_no_other() -> None:
    p = problem(lr=1.5, c1=7.0, c2=2.0, resource=95.0)
    ours = set(zip(*(array.tolist() for array in design.pairs(p)), strict=True))
    rate = 1.5 * 0.25
    brute = {
        (R, tau)
        for R in range(1, 100)
        for tau in range(1, 100)
        if 7 * R + 2 * R * tau <= 95
        and rate + rate**2 * tau * (tau - 1) <= 1 + 1e-12  # (21d), (21e)
    }
    assert ours == brute
    assert (
        max(tau for _, tau in brute) == int(formulas.longest_period(p)) == 2
    )  # here it is (21e) that ends it


def test_eq_22_spends_the_whole_resource() -> None:
    p = problem()
    K, tau = design.relaxed(p)
    assert tau == pytest.approx(100 * K / (1000 - K))
    assert 100 * K / tau + K == pytest.approx(1000)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1.0, 2.0, 4.0, 10.0, 1e3])
def test_eq_23_inverts_eq_9_by_the_right_root(epsilon: float) -> None:
    for K in (1, 99, 176, 10_000):
        z = math.sqrt(2 * K / formulas.scale(epsilon, 1e-4))
        assert formulas.epsilon_zcdp(K, z, 1e-4) == pytest.approx(epsilon, rel=1e-9, abs=0)
    root = (math.sqrt(math.log(1e4) + epsilon) - math.sqrt(math.log(1e4))) ** 2
    assert formulas.scale(epsilon, 1e-4) == pytest.approx(
        root, rel=1e-2 if epsilon < 1e-6 else 1e-9
    )


@pytest.mark.parametrize(
    ("epsilon", "truth", "too_small"),
    [(1.0, 76.6, 38.8), (2.0, 79.5, 20.4), (4.0, 85.0, 11.1), (10.0, 100.0, 5.50)],
)
def test_eq_25_as_printed_is_the_wrong_root(epsilon: float, truth: float, too_small: float) -> None:
    Z = formulas.paper_scale(epsilon, 1e-4)
    assert formulas.epsilon_zcdp(50, math.sqrt(2 * 50 / Z), 1e-4) == pytest.approx(truth, abs=0.06)
    assert math.sqrt(Z / formulas.scale(epsilon, 1e-4)) == pytest.approx(too_small, rel=3e-3)
    assert Z * formulas.scale(epsilon, 1e-4) == pytest.approx(
        epsilon**2
    )  # the two roots of one quadratic


def test_eq_25_figures_of_privacy_md() -> None:
    assert formulas.paper_scale(10, 1e-4) == pytest.approx(55.02, abs=0.005)
    assert formulas.scale(10, 1e-4) == pytest.approx(1.8174, abs=5e-5)


def test_eq_24_is_eq_12_with_22_and_23_put_in() -> None:
    p = problem(devices=3, batch=(20.0, 50.0, 90.0), variance=0.01, smoothness=0.4, lr=0.3)
    Z, step = formulas.paper_scale(10, 1e-4), 0.3 * 0.01
    for K in (20.0, 105.3, 400.0):
        tau = 100 * K / (1000 - K)  # (22)
        decay = (1 - step) ** K / K
        slope = 0.3 * 0.4 / (2 * 0.01 * 3) + (0.3 * 0.4) ** 2 * (tau - 1) / (2 * 0.01)
        noise = 0.01 + 2 * K * 103 / (3 * Z) * sum(1 / x**2 for x in (20, 50, 90))
        as_printed = p.gap * decay + (1 - decay) * slope * noise
        ours = formulas.paper_bound(p, at(K), formulas.variance_floor(p, at(tau), at(2 * K / Z)))[0]
        assert ours == pytest.approx(as_printed, rel=1e-12)


def test_the_relaxed_optimum_rounds_past_the_resource() -> None:
    K, tau = design.relaxed(problem())
    assert [K, tau] == pytest.approx([105.3, 11.8], abs=0.05)
    assert formulas.cost(problem(), at(round(K / tau)), at(round(tau)))[0] == 1008  # of 1000
    grid = np.linspace(9.91, 900, 20_000)
    Z = formulas.paper_scale(10, 1e-4)
    B = formulas.variance_floor(problem(), 100 * grid / (1000 - grid), 2 * grid / Z)
    assert abs(K - grid[formulas.paper_bound(problem(), grid, B).argmin()]) < 0.1


# -- what the bounds say of a run whose gap is known -----------------------------------------------


def quadratic(p: DesignProblem, K: int, tau: int, sigma: float, runs: int) -> Numbers:
    """Return the mean gap of each iterate of (7) on λ/2·θ² in d dimensions, from gap α; (K,)."""
    generator = np.random.default_rng(5)
    lam, eta, M, d = p.strong_convexity, p.lr, p.devices, p.dim
    theta = np.full((runs, M, d), math.sqrt(2 * p.gap / (lam * d)))
    gaps = np.empty(K)
    for k in range(1, K + 1):
        theta = theta - eta * (lam * theta + sigma * generator.standard_normal(theta.shape))  # (7a)
        mean = theta.mean(axis=1, keepdims=True)
        gaps[k - 1] = lam / 2 * float((mean**2).sum(axis=(1, 2)).mean())
        if k % tau == 0:
            theta = np.broadcast_to(mean, theta.shape)  # (7b)
    return gaps


def test_eq_12_is_false_without_any_noise() -> None:
    p = problem(
        devices=1, dim=1, smoothness=1.0, strong_convexity=1.0, lr=1e-3, gap=1.0, variance=0.0
    )
    B = formulas.variance_floor(p, at(1), at(0))
    gaps = quadratic(p, 100, 1, 0.0, 1)
    assert B[0] == 0
    assert gaps.min() == gaps[-1] == pytest.approx(0.8187, abs=1e-4)
    assert formulas.paper_bound(p, at(100), B)[0] == pytest.approx(
        0.00905, abs=1e-5
    )  # claims a hundredth of it
    assert formulas.last_iterate(p, at(100), B)[0] == pytest.approx(0.9048, abs=1e-4)
    assert formulas.average_iterate(p, at(100), B)[0] == pytest.approx(
        np.mean(0.999 ** np.arange(1, 101))
    )


@pytest.mark.parametrize("K", [10, 50, 200])
def test_the_corrected_bounds_hold_where_eq_12_does_not(K: int) -> None:
    p = problem(
        devices=4,
        dim=20,
        smoothness=1.0,
        strong_convexity=1.0,
        lr=0.02,
        gap=5.0,
        variance=0.0,
        batch=(1.0,),
    )
    sigma, tau = 0.5, 5
    B = formulas.variance_floor(p, at(tau), at(sigma**2))  # z = σX/G = σ
    gaps = quadratic(p, K, tau, sigma, 200)
    assert gaps[-1] < formulas.last_iterate(p, at(K), B)[0]
    assert gaps.mean() < formulas.average_iterate(p, at(K), B)[0]
    assert (gaps.min() > formulas.paper_bound(p, at(K), B)[0]) == (
        K < 200
    )  # at 200 the gap is at B, all agree


@given(K=st.integers(1, 10_000), B=st.floats(0, 10), step=st.floats(1e-9, 0.9))
def test_the_last_iterate_is_no_later_than_the_average(K: int, B: float, step: float) -> None:
    p = problem(smoothness=1.0, strong_convexity=1.0, lr=step)
    last, average = (
        bound(p, at(K), at(B))[0] for bound in (formulas.last_iterate, formulas.average_iterate)
    )
    assert min(p.gap, B) * (1 - 1e-9) <= last <= average * (1 + 1e-9)


# -- the search ------------------------------------------------------------------------------------


def brute(p: DesignProblem, Z: float) -> tuple[float, int, int]:
    """Return the least last-iterate bound over all K and all τ that divide K.

    It uses the formulas of privacy.md §5 alone.
    """
    return min(_brute(p, Z))


def _brute(p: DesignProblem, Z: float) -> Iterator[tuple[float, int, int]]:
    eta, L, lam, M = p.lr, p.smoothness, p.strong_convexity, p.devices
    inverse = sum(1 / x**2 for x in p.batch) / len(p.batch)
    for K in range(1, int(p.resource / p.c2) + 1):
        for tau in (tau for tau in range(1, K + 1) if K % tau == 0):
            if (
                p.c1 * K / tau + p.c2 * K > p.resource
                or eta * L + eta**2 * L**2 * tau * (tau - 1) > 1 + 1e-12
            ):
                continue
            spread = p.xi2 + 2 * K * p.dim * p.lipschitz**2 / Z * inverse
            B = (eta * L / (2 * lam * M) + eta**2 * L**2 * (tau - 1) / (2 * lam)) * spread
            yield (1 - eta * lam) ** K * (p.gap - B) + B, K, tau


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epsilon": 1.0},
        {"batch": (64.0,)},
        {"lr": 1.0},
        {"c1": 10.0, "resource": 300.0},
        {"devices": 2, "batch": (30.0, 300.0)},
        {"c1": 0.0, "resource": 60.0},
        {"variance": 0.0, "resource": 400.0},
    ],
)
def test_the_search_finds_what_trying_everything_finds(changes: dict[str, Any]) -> None:
    p = problem(**changes)
    best, (least, K, tau) = plan(p), brute(p, formulas.scale(p.epsilon, p.delta))
    assert best.predicted_loss == pytest.approx(least, rel=1e-9)
    assert (best.K, best.tau) == (K, tau)


@pytest.mark.parametrize(
    ("changes", "corrected", "paper"),
    [
        ({}, (176, 22, 0.0544), (99, 11, 0.0074)),
        ({"batch": (64.0,)}, (45, 5, 0.110), (45, 5, 0.020)),
        ({"lr": 1.0}, (18, 2, 0.0174), (18, 2, 0.0032)),
    ],
)
def test_the_worked_example(
    changes: dict[str, Any], corrected: tuple[int, int, float], paper: tuple[int, int, float]
) -> None:
    for planner, (K, tau, sigma) in (("corrected", corrected), ("paper", paper)):
        best = plan(problem(**changes), planner)  # type: ignore[arg-type]
        assert (best.K, best.tau) == (K, tau)
        assert best.sigma == pytest.approx(sigma, abs=5e-4 if sigma > 0.1 else 6e-5)
    right, wrong = plan(problem()), plan(problem(), "paper")
    assert (right.rounds, right.resource) == (8, 976)
    assert right.predicted_loss == pytest.approx(0.618, abs=5e-4)
    assert right.epsilon == pytest.approx(10, rel=1e-9)
    assert wrong.epsilon == pytest.approx(100.0, abs=0.05)


def test_the_objective_is_least_at_the_plan() -> None:
    best = plan(problem())
    taus = [tau for tau, _ in best.objective]
    assert taus == list(range(1, 41))  # (21e): .025 + .025²·40·39 = 1
    assert min(best.objective, key=lambda point: point[1]) == (best.tau, best.predicted_loss)


def taus(
    planner: Any, epsilons: list[float], resources: list[float], batch: float
) -> list[list[int]]:
    return [
        [plan(problem(epsilon=e, resource=c, batch=(batch,)), planner).tau for c in resources]
        for e in epsilons
    ]  # rows: ε


@pytest.mark.parametrize("planner", ["corrected", "paper"])
@pytest.mark.parametrize("batch", [64.0, 256.0])
def test_tau_rises_with_epsilon(planner: str, batch: float) -> None:
    epsilons = [0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 20.0]
    table = np.array(taus(planner, epsilons, [200.0, 500.0, 1000.0, 2000.0], batch))
    assert (np.diff(table, axis=0) >= 0).all()
    assert (table[0] < table[-1]).any()


@pytest.mark.parametrize("planner", ["corrected", "paper"])
@pytest.mark.parametrize("batch", [64.0, 256.0])
def test_tau_falls_with_the_resource_from_500_to_1000_to_2000(planner: str, batch: float) -> None:
    table = np.array(taus(planner, [1.0, 2.0, 4.0, 10.0], [200.0, 500.0, 1000.0, 2000.0], batch))
    assert (np.diff(table, axis=1) <= 0).all()
    assert (table[:, 0] > table[:, -1]).any()


def test_tau_rises_between_the_resources_that_pay_for_one_round_more() -> None:
    # Rounds are whole: until C_th pays for one more, only longer rounds can use it. A saw's teeth,
    # falling overall.
    (row,) = taus("corrected", [10.0], [310.0, 320.0, 330.0, 420.0, 430.0, 440.0], 64.0)
    assert row == [11, 6, 9, 9, 7, 8]


# -- Poisson batches and PLD -----------------------------------------------------------------------

SMALL = {"epsilon": 2.0, "c1": 10.0, "resource": 34.0, "batch": (256.0,), "smoothness": 2.5}
Q = 0.25


@pytest.fixture(scope="module")
def poisson() -> DesignedRun:
    return plan(problem(**SMALL), "poisson", Q)


def test_the_poisson_planner_finds_what_calibrating_everywhere_finds(poisson: DesignedRun) -> None:
    p = problem(**SMALL)
    rounds, tau = design.pairs(p)
    K = rounds * tau
    noise = {k: calibrate(2, 1e-4, int(k), Q, "discrete_gaussian") for k in set(K.tolist())}
    z = np.array([noise[k] for k in K.tolist()])
    losses = formulas.last_iterate(p, K, formulas.variance_floor(p, tau, z**2))
    assert poisson.predicted_loss == pytest.approx(losses.min(), rel=2e-3)
    assert poisson.predicted_loss == pytest.approx(
        losses[(K == poisson.K) & (tau == poisson.tau)].item(), rel=1e-12
    )
    assert poisson.noise_multiplier == noise[poisson.K]


def test_the_poisson_planner_keeps_the_budget_with_less_noise(poisson: DesignedRun) -> None:
    spent = epsilon_pld([Spend(Q, poisson.noise_multiplier, poisson.K, "discrete_gaussian")], 1e-4)
    assert poisson.epsilon == spent <= 2
    assert (
        epsilon_pld(
            [Spend(Q, poisson.noise_multiplier - 1e-3, poisson.K, "discrete_gaussian")], 1e-4
        )
        > 2
    )
    assert poisson.sigma == poisson.noise_multiplier / 256
    zcdp = plan(problem(**SMALL))
    assert poisson.sigma < math.sqrt(2 * poisson.K / formulas.scale(2, 1e-4)) / 256 / 5
    assert poisson.predicted_loss < zcdp.predicted_loss


def test_poisson_sampling_needs_a_nineteenth_of_the_noise() -> None:
    for z, within in (
        (0.548, True),
        (0.546, False),
    ):  # privacy.md §5: X = 64, n = 1628, K = 100: σ = .00855
        assert (epsilon_pld([Spend(64 / 1628, z, 100)], 1e-4) <= 10) == within
    assert math.sqrt(2 * 100 / formulas.scale(10, 1e-4)) / 64 == pytest.approx(0.164, abs=5e-4)


# -- whatever is asked -----------------------------------------------------------------------------

positive = st.floats(1e-3, 1e3)


@settings(max_examples=200, deadline=None)
@given(
    epsilon=st.floats(1e-6, 1e4),
    delta=st.floats(1e-12, 0.5),
    devices=st.integers(1, 5),
    lipschitz=positive,
    dim=st.integers(1, 10**6),
    smoothness=positive,
    convexity=st.floats(1e-6, 1.0),
    rate=st.floats(1e-3, 1.0),
    c1=st.floats(0, 1e3),
    c2=st.floats(1e-3, 10),
    times=st.floats(1.0, 300.0),
    gap=positive,
    sizes=st.lists(st.integers(1, 10_000), min_size=5, max_size=5),
    single_device=st.booleans(),
)
def test_a_plan_keeps_both_limits(
    epsilon: float,
    delta: float,
    devices: int,
    lipschitz: float,
    dim: int,
    smoothness: float,
    convexity: float,
    rate: float,
    c1: float,
    c2: float,
    times: float,
    gap: float,
    sizes: list[int],
    single_device: bool,
) -> None:
    batch = tuple(float(size) for size in sizes[: 1 if single_device else devices])
    p = DesignProblem(
        epsilon,
        delta,
        devices,
        batch,
        lipschitz,
        dim,
        smoothness,
        convexity * smoothness,
        0.99 * rate / smoothness,
        c1,
        c2,
        (c1 + c2) * times,
        gap,
    )
    planned = plan(p)
    assert planned.rounds * planned.tau == planned.K
    assert c1 * planned.rounds + c2 * planned.K <= p.resource * (1 + 1e-12)
    for size, sigma in zip(batch, planned.sigmas, strict=True):
        spent = formulas.epsilon_zcdp(planned.K, sigma * size / lipschitz, delta)
        assert epsilon * (1 - 1e-6) <= spent <= epsilon * (1 + 1e-13)
    assert planned.epsilon <= epsilon
    step = p.lr * p.smoothness
    assert step + step**2 * planned.tau * (planned.tau - 1) <= 1 + 1e-12
    assert math.isfinite(planned.predicted_loss)
    assert planned.predicted_loss <= planned.average_loss * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0: expected a number above 0"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"epsilon": 1e-200}, "epsilon=1e-200"),
        ({"delta": 1.0}, "delta=1.0: expected a number above 0 and below 1"),
        ({"devices": 0}, "devices=0: expected a number of at least 1"),
        ({"batch": (0.5,)}, "batch=0.5: expected a number of at least 1"),
        ({"batch": (8.0, 9.0)}, "batch=8,9: 2 sizes for devices=16; give one, or one each"),
        ({"lipschitz": -1.0}, "lipschitz=-1.0"),
        ({"dim": 0}, "dim=0"),
        ({"smoothness": math.inf}, "smoothness=inf"),
        ({"lr": 5.0}, "lr=5.0: times smoothness=0.25 is 1.25, above 1: (21e)"),
        (
            {"lr": 4.0, "strong_convexity": 0.25},
            "lr=4.0: times strong_convexity=0.25 is 1; below 1 needed",
        ),
        ({"strong_convexity": 0.5}, "strong_convexity=0.5: is above smoothness=0.25"),
        ({"c1": -1.0}, "c1=-1.0: expected a number of at least 0"),
        ({"c2": math.nan}, "c2=nan"),
        ({"c1": 0.0, "c2": 0.0}, "c1=0.0: c2 is 0 too"),
        ({"variance": -0.1}, "variance=-0.1"),
        ({"gap": 0.0}, "gap=0.0"),
        ({"resource": 100.5}, "resource=100.5: one step and one average cost 101: no plan"),
        ({"resource": 1e12}, "resource=1000000000000.0: pays for more than 2000000 pairs"),
        ({"lr": 1e-20, "c2": 0.0}, "resource=1000.0: pays for more than 2000000 pairs"),
    ],
)
def test_bad_input_names_the_field_and_the_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(problem(**changes))
    assert message in str(caught.value)


@pytest.mark.parametrize("rate", [None, 0.0, 1.5, math.nan])
def test_the_poisson_planner_needs_a_sampling_rate(rate: float | None) -> None:
    with pytest.raises(
        ConfigError, match=f"sampling_rate={rate}: planner poisson needs a number above 0"
    ):
        plan(problem(), "poisson", rate)


def test_no_noise_reaches_a_tiny_epsilon() -> None:
    with pytest.raises(ConfigError, match="epsilon=1e-09: no noise reaches it"):
        plan(problem(epsilon=1e-9, delta=1e-12, resource=150.0), "poisson", 1.0)
