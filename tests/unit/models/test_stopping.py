"""The stop that saves ε: on curves that are flat, rise, fall, or are drowned in noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from tacit.models.stopping import EARLIEST, PATIENCE, Baseline, Evaluated, can_end, no_better

T = 1000
ROWS = 2000
CONSTANT = Baseline(0.5, math.log(2))
Curve = Callable[[float], float]


def stops_at(
    accuracy: Curve | None, loss: Curve, *, scatter: float = 0.0, seed: int = 1
) -> int | None:
    """Return the version at which a run with these curves over t/T stops, evaluated 100 times."""
    chance = random.Random(seed)
    evaluations: list[Evaluated] = []
    for version in range(0, T, T // 100):
        share = None if accuracy is None else accuracy(version / T) + chance.gauss(0, scatter)
        measured = loss(version / T) + chance.gauss(0, scatter)
        evaluations.append(Evaluated(version, share, measured, ROWS))
        if no_better(evaluations, T, CONSTANT):
            return version
    return None


def flat(progress: float) -> float:
    return 0.8


def rising(progress: float) -> float:
    """Two points with each doubling of the updates."""
    return 0.9 + 0.02 * math.log2(progress + 0.01)


def low_loss(progress: float) -> float:
    return 0.5


def test_a_flat_curve_ends_early() -> None:
    stopped = stops_at(flat, low_loss)
    assert stopped is not None
    assert EARLIEST * T <= stopped <= 0.4 * T  # at √0.4 = 63 % of ε


def test_a_rising_curve_goes_to_its_end() -> None:
    assert stops_at(rising, low_loss) is None


def test_a_loss_that_falls_goes_on_while_the_accuracy_is_flat() -> None:
    """A rare class: every guess is the same, and the probabilities get better."""
    assert stops_at(flat, lambda t: 0.5 - 0.1 * math.log2(t + 0.01)) is None


def test_an_accuracy_that_rises_goes_on_while_the_loss_gets_worse() -> None:
    assert stops_at(rising, lambda t: 0.5 + 0.3 * t) is None


def test_a_falling_curve_ends_early() -> None:
    stopped = stops_at(lambda t: 0.8 - 0.1 * t, lambda t: 0.5 + t)
    assert stopped is not None
    assert stopped <= 0.4 * T


def test_a_curve_that_swings_says_too_little_to_end_a_run() -> None:
    """Steps too large for the data: its models are 10 points apart."""
    assert stops_at(flat, low_loss, scatter=0.1) is None


def test_a_number_is_judged_by_its_loss() -> None:
    assert stops_at(None, lambda t: 0.1) is not None
    assert stops_at(None, lambda t: 0.1 / (t + 0.1)) is None


def test_what_has_not_begun_to_learn_gets_its_patience() -> None:
    constant = stops_at(lambda t: 0.5, lambda t: math.log(2))
    assert constant is not None
    assert constant >= PATIENCE * T
    late = stops_at(lambda t: 0.5 + max(0.0, t - 0.3), lambda t: math.log(2))
    assert late is None


@pytest.mark.parametrize("begins", [0.1, 0.3, 0.5, 0.6])
def test_a_late_learner_goes_to_its_end(begins: float) -> None:
    """A product of two columns: at the constant's level until a network has found it."""

    def learnt(progress: float) -> float:
        return min(1.0, max(0.0, progress - begins) / (1 - begins))

    def accuracy(progress: float) -> float:
        return 0.5 + 0.3 * learnt(progress)

    def loss(progress: float) -> float:
        return math.log(2) - 0.3 * learnt(progress)

    for seed in range(20):
        assert stops_at(accuracy, loss, scatter=0.002, seed=seed) is None


def test_noise_alone_ends_early_and_a_rise_within_it_does_not() -> None:
    """Of 100 seeds each: 0.4 points of scatter, as small private batches have.

    A rise of 2 points a doubling is ended early in at most 5 of 100, and so is told from none:
    that ends before its last third in at least 80.
    """
    none = [stops_at(flat, low_loss, scatter=0.004, seed=seed) for seed in range(100)]
    assert sum(version is not None and version < 2 * T / 3 for version in none) >= 80
    risen = [stops_at(rising, low_loss, scatter=0.004, seed=seed) for seed in range(100)]
    assert sum(version is not None and version < T / 2 for version in risen) <= 5


@pytest.mark.parametrize("rows", [100, 100_000])
def test_a_gain_of_less_than_two_rows_is_none(rows: int) -> None:
    """The same gain, one row of 100 or 1,000 of 100,000, counts where enough rows show it."""

    def ends(gain: float) -> bool:
        points = [
            Evaluated(version, 0.8 + gain * (version > T / 4), 0.5, rows)
            for version in range(0, T // 2 + 1, 10)
        ]
        return no_better(points, T, CONSTANT)

    assert ends(0.0)
    assert ends(0.01) == (rows == 100)


def test_a_model_without_numbers_ends_early() -> None:
    """A loss that is no number, or has no bound, is no gain."""
    for lost in (math.nan, math.inf):
        points = [Evaluated(version, 0.8, lost, ROWS) for version in range(0, T, 10)]
        assert no_better(points, T, CONSTANT)


def test_few_evaluations_say_nothing() -> None:
    assert not no_better([], T, CONSTANT)
    assert not no_better([Evaluated(T - 1, 0.8, 0.5, ROWS)] * 5, T, CONSTANT)


@pytest.mark.parametrize("every", [1, 5, 10, 20, 27, 28, 30, 50, 400, 2000])
def test_it_is_known_before_whether_a_flat_run_can_end(every: int) -> None:
    evaluations: list[Evaluated] = []
    ended = False
    for version in range(0, T, every):
        evaluations.append(Evaluated(version, 0.8, 0.4, ROWS))
        ended = ended or no_better(evaluations, T, CONSTANT)
    assert can_end(T, every, T) == ended


def test_a_run_of_any_length_is_answered_at_once() -> None:
    assert can_end(2**53, 1, 2**53)
    assert not can_end(2**53, 1, 1000)
