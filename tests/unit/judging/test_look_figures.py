"""Figures of noisy sums: their intervals hold the exact figure, and the noise is what is claimed.

Each of 300 draws of the noise gives an interval of 95 %. Of an honest one fewer than 93 % hold the
exact figure with a probability below 0.07; with seeds that are fixed, this holds or not for good.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit.datasets.target import Target
from tacit.judging import look_choice
from tacit.judging.look_figures import (
    LookSums,
    beyond_constant,
    consistent,
    figures,
    gain,
    reliability,
    spread,
)
from tacit.judging.look_sheet import LookSheet, NumberBounds

TWO = LookSheet.of(Target("classes", ("no", "yes")))
FIVE = LookSheet.of(Target("classes", tuple("abcde")))
NUMBER = LookSheet.of(Target("number", low=10.0, span=40.0), NumberBounds(0.0, 1.0, 0.25))
ROWS, NOISE, TRIALS = 8000, 25.0, 300


def exact(sheet: LookSheet, skill: float = 1.0, rows: int = ROWS, seed: int = 1) -> LookSums:
    """Return the sums of a model of some skill, without noise."""
    generator = torch.Generator().manual_seed(seed)
    if sheet.bounds is not None:
        y = torch.rand(rows, generator=generator)
        errors = torch.randn(rows, generator=generator) * 0.15 / skill
        return LookSums(sheet, sheet.vectors(y + errors, y).astype(np.float64).sum(0), 0.0)
    count = len(sheet.target.names)
    y = torch.randint(count, (rows,), generator=generator)
    y[: rows // 4] = 0
    scores = torch.randn(rows, count, generator=generator)
    scores[torch.arange(rows), y] += skill
    return LookSums(sheet, sheet.vectors(scores.softmax(1), y).astype(np.float64).sum(0), 0.0)


def noisy(look: LookSums, seed: int, noise: float = NOISE, stated: float = NOISE) -> LookSums:
    generator = np.random.default_rng(seed)
    drawn = look.sums + noise * generator.standard_normal(len(look.sums))
    return replace(look, sums=drawn, noise=stated)


def held(sheet: LookSheet, noise: float = NOISE) -> dict[str, float]:
    """Return how often each figure's interval holds the exact one, where the noise is `noise`."""
    truth = exact(sheet)
    values = {name: interval.value for name, interval in figures(truth).items()}
    counts = dict.fromkeys(values, 0)
    for seed in range(TRIALS):
        read = figures(noisy(truth, seed, noise))
        for name, value in values.items():
            counts[name] += read[name].low <= value <= read[name].high
    return {name: count / TRIALS for name, count in counts.items()}


def test_without_noise_the_figures_are_those_of_the_rows() -> None:
    sheet = TWO
    generator = torch.Generator().manual_seed(3)
    y = torch.randint(2, (400,), generator=generator)
    second = (torch.rand(400, generator=generator) + 0.3 * y).clamp(0, 1)
    sums = sheet.vectors(torch.stack((1 - second, second), 1), y).astype(np.float64).sum(0)
    read = figures(LookSums(sheet, sums, 0.0))
    right = (second >= 0.5) == y
    assert read["accuracy"].value == pytest.approx(float(right.double().mean()), abs=1e-6)
    for place, name in enumerate(("no", "yes")):
        recall = float(right[y == place].double().mean())
        assert read[f"accuracy of {name}"].value == pytest.approx(recall, abs=1e-6)
    pairs = (second[y == 1][:, None] > second[y == 0][None]).double()
    pairs += 0.5 * (second[y == 1][:, None] == second[y == 0][None]).double()
    assert read["auc"].value == pytest.approx(float(pairs.mean()), abs=0.02)


def test_of_a_number_rmse_and_mae_are_in_the_files_unit() -> None:
    read = figures(exact(NUMBER, skill=3.0))
    assert read["rmse"].value == pytest.approx(0.05 * 40, rel=0.05)
    assert read["mae"].value == pytest.approx(0.05 * 40 * np.sqrt(2 / np.pi), rel=0.05)


@pytest.mark.parametrize("sheet", [TWO, FIVE, NUMBER])
def test_intervals_hold_the_exact_figures(sheet: LookSheet) -> None:
    assert min(held(sheet).values()) >= 0.93


@pytest.mark.parametrize("sheet", [TWO, FIVE, NUMBER])
def test_with_more_noise_than_is_said_they_do_not(sheet: LookSheet) -> None:
    assert min(held(sheet, 1.5 * NOISE).values()) < 0.9


@pytest.mark.parametrize("sheet", [TWO, FIVE, NUMBER])
def test_with_less_noise_than_is_said_they_hold_them_too_often(sheet: LookSheet) -> None:
    assert np.mean(list(held(sheet, NOISE / 1.5).values())) > 0.985


@pytest.mark.parametrize("sheet", [TWO, FIVE, NUMBER])
def test_what_parts_count_alike_agrees_and_has_less_noise(sheet: LookSheet) -> None:
    truth = exact(sheet).sums
    assert np.allclose(consistent(sheet, truth[None])[0], truth, atol=1e-2)
    noise = np.random.default_rng(1).standard_normal((500, sheet.width))
    nearer = consistent(sheet, noise)
    assert np.allclose(consistent(sheet, nearer), nearer)
    assert (nearer**2).sum() < 0.96 * (noise**2).sum()


@pytest.mark.parametrize("sheet", [TWO, FIVE, NUMBER])
def test_what_noise_hides_is_left_out(sheet: LookSheet) -> None:
    few = noisy(exact(sheet, rows=40), 1)
    assert figures(few) == {}
    assert beyond_constant(few) is None
    assert gain(few, few) is None
    assert reliability(few) == []


def test_a_gain_is_positive_where_the_later_model_is_better() -> None:
    for sheet in (TWO, FIVE, NUMBER):
        worse, better = exact(sheet, 0.3), exact(sheet, 3.0)
        read = gain(noisy(better, 1), noisy(worse, 2))
        assert read is not None
        assert read.low > 0
        back = gain(noisy(worse, 1), noisy(better, 2))
        assert back is not None
        assert back.high < 0


def test_a_model_that_knows_nothing_is_not_seen_to_beat_a_constant() -> None:
    for sheet in (TWO, FIVE):
        ignorant = beyond_constant(noisy(exact(sheet, 0.0), 1))
        assert ignorant is not None
        assert ignorant.low <= 0
    for sheet in (TWO, FIVE, NUMBER):
        skilled = beyond_constant(noisy(exact(sheet, 4.0), 1))
        assert skilled is not None
        assert skilled.low > 0


def test_the_share_that_came_true_is_in_its_cell_where_probabilities_are_honest() -> None:
    generator = torch.Generator().manual_seed(4)
    second = torch.rand(20_000, generator=generator)
    y = (torch.rand(20_000, generator=generator) < second).long()
    sums = TWO.vectors(torch.stack((1 - second, second), 1), y).astype(np.float64).sum(0)
    cells = reliability(noisy(LookSums(TWO, sums, 0.0), 1))
    assert len(cells) > 8
    for cell in cells:
        assert cell["low"] <= cell["to"]
        assert cell["high"] >= cell["from"]


def test_the_spread_of_edges_is_beside_what_noise_alone_makes() -> None:
    alike = np.stack([noisy(exact(TWO, 1.0, seed=seed), seed).sums for seed in range(5)])
    unlike = np.stack([exact(TWO, float(seed), seed=seed).sums for seed in range(5)])
    of_alike, of_unlike = spread(TWO, alike, NOISE), spread(TWO, unlike, NOISE)
    assert of_alike is not None
    assert of_unlike is not None
    assert of_alike["edges"] == 5
    assert of_alike["most"] - of_alike["least"] < 8 * of_alike["noise"]
    assert of_unlike["most"] - of_unlike["least"] > 12 * of_unlike["noise"]
    assert spread(TWO, alike[:1], NOISE) is None


def test_the_best_is_the_latest_model_that_is_not_surely_worse() -> None:
    curve = [exact(TWO, skill) for skill in (0.2, 1.5, 1.5, 0.1)]
    assert look_choice.best([noisy(look, seed) for seed, look in enumerate(curve)]) == 2
    assert look_choice.best([noisy(curve[1], 1), noisy(curve[0], 2)]) == 0
    hidden = [noisy(look, seed, 2000.0, 2000.0) for seed, look in enumerate(curve)]
    assert look_choice.best(hidden) is None
    assert look_choice.best([]) is None


def test_a_flat_curve_ends_a_run_only_where_the_noise_lets_it_be_seen() -> None:
    def shows_no_gain(noise: float, *skills: float, rows: int = 40_000) -> bool:
        looks = [
            noisy(exact(TWO, skill, rows, seed=7), seed, noise, noise)
            for seed, skill in enumerate(skills)
        ]
        return look_choice.no_gain(looks)

    assert shows_no_gain(30.0, 1.5, 1.5, 1.5, 1.5)
    assert not shows_no_gain(30.0, 0.5, 1.0, 1.5, 2.0)  # it still gains
    assert not shows_no_gain(30.0, 0.0, 0.0, 0.0, 0.0)  # it has not begun to learn
    assert not shows_no_gain(1000.0, 1.5, 1.5, 1.5, 1.5)  # the noise hides it
    assert not shows_no_gain(30.0, 1.5, 1.5)  # too few looks
