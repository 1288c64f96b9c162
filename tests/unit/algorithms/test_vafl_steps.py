"""The step sizes of VAFL's theorems."""

from __future__ import annotations

import math

import pytest

from tacit.algorithms.vafl import step_rules
from tacit.algorithms.vafl.step_rules import StepRule

# -- step sizes ------------------------------------------------------------------------------------


def test_theorem_1_the_step() -> None:
    assert step_rules.theorem_1(10.0, 4, 1e9, 100) == 1 / (4 * 5 * 10)
    assert step_rules.theorem_1(10.0, 4, 0.01, 100) == 0.01 / 10


def test_theorem_2_the_step_of_the_proof() -> None:
    L, mu, D, q = 10.0, 0.5, 4, 0.2
    start = 4 * (4 * (D + 1) * L + 2 * mu * q * D) / (mu * q)
    for k in (0, 7, 1000):
        assert step_rules.theorem_2(k, L, mu, D, q) == pytest.approx(4 / (mu * q * (k + start)))
    # What the proof needs of η^0: it is within Theorem 1's 1/(4(D+1)L).
    assert step_rules.theorem_2(0, L, mu, D, q) <= step_rules.theorem_1(L, D, math.inf, 1)


def test_theorem_3_the_step_takes_the_sum_of_the_tail() -> None:
    tail, ratio = 0.7, 0.6
    total = sum(
        sum(s * tail * ratio**s for s in range(d, 400)) for d in range(1, 400)
    )  # c_m = Σ_d Σ_{s>=d} s·p_s
    assert step_rules.delay_constant(tail, ratio) == pytest.approx(total, rel=1e-9)
    step = step_rules.theorem_3(10.0, tail, ratio, 1e9, 100)
    assert step == pytest.approx(1 / (4 * (1 + math.sqrt(total)) * 10))
    assert step_rules.theorem_3(10.0, tail, ratio, 0.01, 100) == 0.001


def test_theorem_4_the_step() -> None:
    L, mu, tail, ratio, q = 10.0, 0.5, 0.7, 0.6, 0.2
    c = step_rules.delay_constant(tail, ratio)
    longest = 1 / (4 * (1 + math.sqrt(c)) * L)
    nu = min((1 - ratio) * c / (longest * (20 + c)), mu * q / 2)
    start = 4 * (1 + math.sqrt(c)) * L / nu
    for k in (0, 7, 1000):
        assert step_rules.theorem_4(k, L, mu, tail, ratio, q) == pytest.approx(
            2 / (nu * (k + start))
        )


@pytest.mark.parametrize("rule", ["theorem_1", "theorem_3"])
def test_theorems_7_and_9_the_server_steps_t_times_as_far_as_a_party(rule: str) -> None:
    steps = StepRule(rule=rule, smoothness=3.0, delay=5, horizon=400, t=4)
    assert steps.server(9) == pytest.approx(4 * steps.party(9))
    assert steps.server(9) == StepRule(rule=rule, smoothness=3.0, delay=5, horizon=400).party(9)


@pytest.mark.parametrize("rule", ["theorem_2", "theorem_4"])
def test_theorems_8_and_10_a_larger_t_starts_with_a_longer_step(rule: str) -> None:
    slow, fast = (
        StepRule(rule=rule, smoothness=3.0, convexity=0.1, delay=5, rarest=0.2, t=t) for t in (1, 4)
    )
    assert fast.party(0) == pytest.approx(4 * slow.party(0))
    assert fast.server(9) == fast.party(9)
    assert fast.party(10**9) == pytest.approx(slow.party(10**9), rel=1e-3)


def test_the_experiments_step_is_constant_with_a_share_for_the_server() -> None:
    steps = StepRule(rate=0.7, server_share=1 / 12)  # appendix G.3: η_0 = η_m/M
    assert steps.party(5) == 0.7
    assert steps.server(5) == pytest.approx(0.7 / 12)
