"""Answers from noisy sums: intervals hold what they say, and what noise hides is never a zero."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.questions.answer_document import Basis, document
from tacit.questions.estimates import Estimate, answers
from tacit.questions.question import parse
from tacit.questions.row_parts import RawCells, Reals
from tacit.questions.sheet import PublicColumns, QuestionSheet

ROWS = 20_000
DRAWS = 200
QUESTIONS = [
    "count", "missing age", "histogram age 0 100 4", "quantile age 0.1 0.5 0.9", "mean age",
    "std age", "counts by sex", "crosstab sex job", "correlation age income",
    "quantile income 0.5",
]  # fmt: skip
PUBLIC = PublicColumns(
    {"age": (0.0, 100.0), "income": (-5.0, 15.0)}, {"sex": ("F", "M"), "job": ("nurse", "other")}
)


def population() -> RawCells:
    random = np.random.default_rng(5)
    age = random.normal(45, 15, ROWS).clip(0, 100)
    income = (age / 20 + random.normal(2, 1, ROWS)).clip(-5, 15)
    age = np.where(random.random(ROWS) < 0.1, np.nan, age)
    sex = random.choice(np.array(["F", "M"], object), ROWS, p=[0.7, 0.3])
    job = random.choice(np.array(["nurse", "other", None], object), ROWS)
    written = np.array(["a number" if known else None for known in ~np.isnan(age)], object)
    return RawCells(ROWS, {"age": age, "income": income}, {"age": written, "sex": sex, "job": job})


def truth(cells: RawCells) -> dict[tuple[str, str], float]:
    """Return exact figures, by question and label, computed another way."""
    age, income = cells.numbers["age"], cells.numbers["income"]
    known = age[~np.isnan(age)]
    both = ~np.isnan(age)
    sex, job = cells.texts["sex"], cells.texts["job"]
    return {
        ("count", ""): ROWS,
        ("missing age", ""): float(np.isnan(age).sum()),
        ("histogram age 0 100 4", "25 to 50"): float(((known >= 25) & (known < 50)).sum()),
        ("quantile age 0.1 0.5 0.9", "0.1"): float(np.quantile(known, 0.1)),
        ("quantile age 0.1 0.5 0.9", "0.5"): float(np.median(known)),
        ("quantile age 0.1 0.5 0.9", "0.9"): float(np.quantile(known, 0.9)),
        ("quantile income 0.5", "0.5"): float(np.median(income)),
        ("mean age", ""): float(known.mean()),
        ("std age", ""): float(known.std()),
        ("counts by sex", "M"): float((sex == "M").sum()),
        ("crosstab sex job", "F, nurse"): float(((sex == "F") & (job == "nurse")).sum()),
        ("correlation age income", ""): float(np.corrcoef(age[both], income[both])[0, 1]),
    }


def sums(sheet: QuestionSheet, cells: RawCells) -> Reals:
    exact: Reals = sheet.vectors(cells).astype(np.float64).sum(axis=0)
    return exact


@pytest.mark.parametrize("deviation", [20.0, 60.0])
def test_ninety_five_of_a_hundred_intervals_hold_the_figure(deviation: float) -> None:
    cells = population()
    sheet = QuestionSheet([parse(text) for text in QUESTIONS], PUBLIC)
    exact = sums(sheet, cells)
    figures = truth(cells)
    covered = dict.fromkeys(figures, 0)
    random = np.random.default_rng(11)
    for _ in range(DRAWS):
        noisy = exact + deviation * random.standard_normal(len(exact))
        for answered in answers(sheet, noisy, deviation):
            for answer in answered.values:
                if (key := (answered.question, answer.label)) in figures:
                    covered[key] += holds(answer, figures[key])
    # Of 200 draws at 95 %, fewer than 179 come once in ten thousand times.
    assert {key: times for key, times in covered.items() if times < 179} == {}


def holds(answer: Estimate, figure: float) -> bool:
    return answer.low is None or (answer.high is not None and answer.low <= figure <= answer.high)


def test_with_too_little_noise_stated_intervals_fail() -> None:
    cells = population()
    sheet = QuestionSheet([parse("count"), parse("mean age")], PUBLIC)
    exact = sums(sheet, cells)
    random = np.random.default_rng(11)
    covered = 0
    for _ in range(DRAWS):
        noisy = exact + 60.0 * random.standard_normal(len(exact))
        count, _ = answers(sheet, noisy, 40.0)
        covered += holds(count.values[0], ROWS)
    assert covered < 179


def test_what_noise_hides_is_suppressed_and_has_no_value() -> None:
    sheet = QuestionSheet([parse(text) for text in QUESTIONS], PUBLIC)
    nothing = np.zeros(sheet.width)
    for answered in answers(sheet, nothing, 50.0):
        for answer in answered.values:
            assert answer.suppressed
            assert answer.value is None
            assert answer.high != 0


def test_an_answer_is_written_with_the_digits_that_its_noise_leaves() -> None:
    sheet = QuestionSheet([parse("count")], PUBLIC)
    (rough,) = answers(sheet, np.array([12_345.678]), 100.0)
    (fine,) = answers(sheet, np.array([12_345.678]), 1.0)
    assert rough.values[0].value == 12_350
    assert fine.values[0].value == 12_345.7
    low, high = rough.values[0].low, rough.values[0].high
    assert low is not None
    assert high is not None
    assert low <= 12_345.678 - 1.9 * 100 < 12_345.678 + 1.9 * 100 <= high


def test_a_question_with_one_answer_has_a_value_and_one_with_several_has_values() -> None:
    sheet = QuestionSheet([parse("count"), parse("counts by sex")], PUBLIC)
    sums = np.array([100.0, 60.0, 40.0, 0.0, 0.0]) * math.sqrt(0.5)
    basis = Basis(4, 5, 0.2, 1e-5, "row")
    single, several = (document(each, basis) for each in answers(sheet, sums, 1.0))
    assert single.items() >= {"question": "count", "suppressed": False, "edges": 4, "of": 5}.items()
    assert "values" not in single
    assert "value" not in several
    assert [each["label"] for each in several["values"]] == ["F", "M", "other", "missing"]
    assert several["values"][2]["suppressed"]


def test_a_spread_that_may_be_none_is_hidden_and_so_is_every_correlation_with_it() -> None:
    bounds = PublicColumns({"age": (0.0, 100.0), "income": (-5.0, 15.0)}, {})
    sheet = QuestionSheet([parse("std age"), parse("correlation age income")], bounds)
    age, income = np.full(ROWS, 45.0), np.random.default_rng(2).uniform(-5, 15, ROWS)
    cells = RawCells(ROWS, {"age": age, "income": income}, {})
    exact = sheet.vectors(cells).astype(np.float64).sum(axis=0)
    random = np.random.default_rng(3)
    hidden = 0
    for _ in range(DRAWS):
        spread, correlation = answers(sheet, exact + 60.0 * random.standard_normal(9), 60.0)
        (deviation,), (between,) = spread.values, correlation.values
        hidden += deviation.suppressed
        if deviation.suppressed:
            assert deviation.low == 0
            assert deviation.high is not None
            assert 0 < deviation.high < 50
        # It is not even known which sign it has.
        assert between.suppressed or between.low is None or between.low < 0 < (between.high or 0)
    assert hidden > 0.95 * DRAWS


def test_a_quantile_is_not_drawn_to_one_side_by_its_noise() -> None:
    sheet = QuestionSheet([parse("quantile age 0.5")], PublicColumns({"age": (0.0, 100.0)}, {}))
    ages = np.random.default_rng(4).uniform(20, 60, ROWS)
    exact = sheet.vectors(RawCells(ROWS, {"age": ages}, {})).astype(np.float64).sum(axis=0)
    random = np.random.default_rng(5)
    medians = []
    for _ in range(DRAWS):
        (answered,) = answers(sheet, exact + 300.0 * random.standard_normal(len(exact)), 300.0)
        medians.append(answered.values[0].value or math.nan)
    # One is off by 1.2; the mean of 200 by less than 0.3, or the numbers of rows do not ascend.
    assert abs(np.mean(medians) - np.median(ages)) < 0.3
    assert 0.5 < np.std(medians) < 2


def test_a_quantile_that_noise_would_write_as_0_is_hidden() -> None:
    random = np.random.default_rng(3)
    money = random.lognormal(10, 1, ROWS) + 100  # nobody has none
    cells = RawCells(ROWS, {"money": money}, {})
    sheet = QuestionSheet([parse("quantile money 0.01 0.5 0.99")], PublicColumns({}, {}))
    exact = sums(sheet, cells)
    hidden = dict.fromkeys(("0.01", "0.5", "0.99"), 0)
    for _ in range(50):
        noisy = exact + 100.0 * random.standard_normal(len(exact))
        for answer in answers(sheet, noisy, 100.0)[0].values:
            assert answer.value != 0
            hidden[answer.label] += answer.suppressed and answer.low is not None
            if answer.low is not None:
                assert answer.high is not None
                assert answer.low <= answer.high
    assert hidden["0.5"] == 0
    assert hidden["0.01"] + hidden["0.99"] > 10
