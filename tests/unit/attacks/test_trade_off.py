"""What ε and δ allow any attack, beside the mechanism that reaches it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from tacit.attacks.trade_off import TradeOff, epsilon_shown


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_randomised_response_reaches_the_bound_and_does_not_pass_it(epsilon: float) -> None:
    # Given an answer that is true with e^ε/(1 + e^ε), which has exactly ε,
    true = 1 / (1 + math.exp(-epsilon))
    bound = TradeOff(epsilon, 0.0)
    # then believing it has the most hits at its false alarms, and its AUC is the most.
    assert bound.most_hits(1 - true) == pytest.approx(true)
    assert bound.most_auc() == pytest.approx(true)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 1e-5), (2.0, 0.1), (0.5, 0.5)])
def test_the_area_is_that_below_the_most_hits(epsilon: float, delta: float) -> None:
    bound = TradeOff(epsilon, delta)
    alarms = np.linspace(0, 1, 200_001)
    hits = [bound.most_hits(rate) for rate in alarms]
    assert bound.most_auc() == pytest.approx(np.trapezoid(hits, alarms), abs=1e-5)
    assert all(second >= first for first, second in pairwise(hits))


def test_an_auc_shows_the_epsilon_that_allows_it() -> None:
    for epsilon in (0.1, 1.0, 5.0):
        auc = TradeOff(epsilon, 1e-5).most_auc()
        assert epsilon_shown(auc, 1e-5) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_shown(0.4, 1e-5) == epsilon_shown(0.5, 0.0) == 0.0
    assert epsilon_shown(1.0, 0.0) == 100.0


def test_without_a_bound_on_epsilon_everything_is_allowed() -> None:
    endless = TradeOff(math.inf, 0.0)
    assert (endless.most_hits(0.0), endless.most_auc()) == (1.0, 1.0)
