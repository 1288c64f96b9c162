"""Values read from noisy sums: the frequent ones, with intervals that hold, and no other."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tacit.privacy.accounting import calibrate
from tacit.questions.estimates import answers
from tacit.questions.question import parse
from tacit.questions.row_parts import RawCells, Reals
from tacit.questions.sheet import PublicColumns, QuestionSheet
from tacit.questions.spelled_values import counted
from tacit.questions.spelling import Spelled, spell
from tests.helpers.nightly import nightly

SITES = 5
DRAWS = 200
# As Adult's, of which four stand out clearly.
EDUCATION = {
    "HS-grad": 10_500, "Some-college": 7_290, "Bachelors": 5_355, "Masters": 1_723,
    "Assoc-voc": 1_382, "Prof-school": 576, "9th": 514, "Preschool": 51, "Zauberer": 1,
}  # fmt: skip
ADULT = {"education": 3, "marital-status": 5, "sex": 9}  # columns


def exact(column: str, values: dict[str, int], missing: int = 0) -> Reals:
    """Return the sums of all rows' vectors."""
    part = Spelled(column)
    texts = np.array([*values, None], object)
    entries = part.entries(part.packed(RawCells(len(texts), {}, {column: texts})))
    weights = entries.values * np.array([*values.values(), missing])[:, None]
    sums = np.bincount(entries.places.ravel(), weights.ravel(), minlength=part.width)
    return sums.astype(np.float64)


def noise_of(epsilon: float, questions: int) -> float:
    """Return the deviation of the noise in a sum of five sites, of one of several questions."""
    z = calibrate(epsilon, 1e-5, 1, 1.0, "gaussian")
    return float(z * np.sqrt(SITES * questions))


def drawn(column: str, values: dict[str, int], noise: float, draws: int) -> dict[str, list[float]]:
    """Return of each value that is read its count's error, in deviations that are stated."""
    random = np.random.default_rng(3)
    sums = exact(column, values)[1:]
    errors: dict[str, list[float]] = {}
    for _ in range(draws):
        for each in counted(column, sums + noise * random.standard_normal(len(sums)), noise):
            error = (each.count - values.get(each.text, -1e9)) / each.deviation
            errors.setdefault(each.text, []).append(error)
    return errors


def inside(errors: list[float], deviations: float = 1.96) -> int:
    return sum(abs(error) <= deviations for error in errors)


def share_held(errors: dict[str, list[float]]) -> float:
    return inside([error for each in errors.values() for error in each]) / sum(
        map(len, errors.values())
    )


def test_without_noise_every_value_is_read_with_its_count() -> None:
    assert spell("education", "Masters").bucket == spell("education", "Bachelors").bucket
    read = counted("education", exact("education", EDUCATION)[1:], 1e-6)
    assert {each.text: round(each.count) for each in read} == EDUCATION


def test_frequent_values_are_read_through_noise_and_their_intervals_hold() -> None:
    draws = DRAWS // 2
    errors = drawn("education", EDUCATION, noise_of(0.2, 3), draws)
    frequent = ("HS-grad", "Some-college", "Bachelors", "Masters")
    for text in frequent:
        assert len(errors[text]) == draws
        # Of 100 draws at 95 %, fewer than 86 come once in ten thousand times.
        assert inside(errors[text]) >= 86
    # Near what can be read, more noise makes a value read, so somewhat fewer hold.
    assert share_held(errors) >= 0.93
    assert set(errors) <= set(EDUCATION) - {"Preschool", "Zauberer"}
    # Intervals of two thirds would hold in 81 of 100.
    assert sum(inside(errors[text], 1.96 * 2 / 3) for text in frequent) < 0.88 * 4 * draws


def test_of_noise_nothing_is_read() -> None:
    random = np.random.default_rng(4)
    for column in map(str, range(40)):
        assert counted(column, random.standard_normal(Spelled(column).width - 1), 1.0) == []


@pytest.mark.parametrize("noise", [5.0, *nightly(1.0, 63.0)])
def test_a_value_that_one_person_has_is_not_shown(noise: float) -> None:
    for name in ("Jane Doe", "x", "a name of thirty and more bytes"):
        assert set(drawn("name", {"common": 20_000, name: 1}, noise, 20)) == {"common"}


def test_the_answer_says_that_other_values_are_not_known() -> None:
    sheet = QuestionSheet([parse("count"), parse("counts by town")], PublicColumns({}, {}))
    _, towns = sheet.asked
    sums = np.append([0.0], exact("town", {"Aachen": 4_000, "Ulm": 9_000}, missing=3_000))
    sums[0] = 16_000
    count, of_towns = answers(sheet, sums * towns.scale, 20.0 * towns.scale)
    assert not count.values[0].suppressed
    assert [each.label for each in of_towns.values] == ["Ulm", "Aachen", "other", "missing"]
    ulm, _, other, missing = of_towns.values
    assert (ulm.value, missing.value) == (9_000, 3_000)
    assert other.suppressed
    assert (other.low, other.high) == (None, None)


@pytest.mark.exhaustive
@pytest.mark.parametrize("column", ADULT)
def test_of_adult_at_five_sites_the_intervals_hold(column: str, data_root: Path | None) -> None:
    path = (data_root or Path()) / "adult" / "adult.data.gz"
    if not path.exists():
        pytest.skip("adult is not among the data sets")
    with gzip.open(path, "rt") as lines:
        rows = [line.split(", ") for line in lines if "," in line]
    values = Counter(row[ADULT[column]] for row in rows)
    errors = drawn(column, values, noise_of(0.2, 3), DRAWS)
    surely = [text for text, each in errors.items() if len(each) == DRAWS]
    assert len(surely) >= {"education": 4, "marital-status": 3, "sex": 2}[column]
    assert set(errors) <= set(values)
    assert all(inside(errors[text]) >= 179 for text in surely)
    assert share_held(errors) >= 0.93
