"""AUC and hit rates, beside obvious twins; intervals that cover, and are wide where rows are few."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.attacks import measured
from tacit.attacks.likelihood_ratio import draws, fewest_runs, likelihood_ratios
from tacit.attacks.sacro_form import metrics_of


def test_the_auc_is_the_share_of_pairs_in_order() -> None:
    chance = np.random.default_rng(1)
    members, others = np.floor(chance.uniform(1, 10, 40)), np.floor(chance.uniform(0, 9, 30))
    pairs = (members[:, None] > others).mean() + (members[:, None] == others).mean() / 2
    interval = measured.auc(members, others)
    assert interval.value == pytest.approx(pairs)
    assert metrics_of(members, others)["AUC"] == pytest.approx(pairs)


def test_intervals_of_95_percent_cover_the_truth_that_often() -> None:
    # Given 400 samples of two normal distributions, one apart, whose AUC is 0.760,
    chance = np.random.default_rng(2)
    truth, covered, rates = 0.7602, 0, 0
    for _ in range(400):
        members, others = chance.normal(1, 1, 60), chance.normal(0, 1, 50)
        auc = measured.auc(members, others)
        covered += auc.low <= truth <= auc.high
        rate = measured.hit_rate(members, others, 0.1)
        rates += rate.alarms_low <= 0.1 <= rate.alarms_high
    # then the interval of the AUC holds it about 380 times (5 deviations: 22).
    assert 358 <= covered <= 398
    assert rates >= 358


def test_few_others_leave_the_false_alarms_open_and_the_report_shows_it() -> None:
    members, others = np.arange(100.0), np.arange(50.0) - 1
    rate = measured.hit_rate(members, others, 0.001)
    assert (rate.alarms, rate.hits) == (0, 51)
    assert rate.alarms_high == pytest.approx(1 - 0.025 ** (1 / 50))  # 7 %, not 0.1 %
    assert rate.share.low < 0.51 < rate.share.high


def test_scores_all_apart_have_an_interval_all_the_same() -> None:
    interval = measured.auc(np.arange(20.0) + 100, np.arange(30.0))
    assert (interval.value, interval.high) == (1.0, 1.0)
    assert interval.low == pytest.approx(0.025 ** (1 / 20))


def test_each_record_is_left_out_as_often_as_any_other() -> None:
    drawn = draws(7, 50, 40, seed=3)
    assert set(drawn.sum(1)) == {40}
    out = (~drawn).sum(0)
    assert (out.min(), out.max()) == (1, 2)
    assert draws(fewest_runs(50, 40), 50, 40, seed=3).sum(0).max() <= fewest_runs(50, 40) - 2


def test_the_ratio_is_that_of_two_normal_densities() -> None:
    # Given two records with 3 signals of shadow runs each, of one variance,
    signals = np.array([[1.0, 5.0], [3.0, 7.0], [0.0, 4.0], [2.0, 2.0]])
    inside = np.array([[True, True], [True, True], [False, False], [False, False]])
    scores = likelihood_ratios(signals, inside, np.array([2.0, 3.0]))
    # when the means are (2, 6) with and (1, 3) without, and the variances of one more signal 3 each,
    expected = [(2 - 1) ** 2 / 6 - (2 - 2) ** 2 / 6, (3 - 3) ** 2 / 6 - (3 - 6) ** 2 / 6]
    with_, without = (4 / 2 * 1.5, 4 / 2 * 1.5)
    assert (with_, without) == (3.0, 3.0)
    # then the scores are the differences of the logarithms.
    assert scores == pytest.approx(expected)


def test_a_record_that_is_always_a_member_is_refused() -> None:
    with pytest.raises(ValueError, match="always, or never"):
        likelihood_ratios(np.zeros((2, 1)), np.ones((2, 1), np.bool_), np.zeros(1))
