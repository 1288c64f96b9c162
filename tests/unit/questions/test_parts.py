"""What is counted of a row: a vector of length at most 1, whatever the row is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.questions.question import parse
from tacit.questions.row_parts import (
    Absent,
    Bins,
    Entries,
    Everybody,
    Moments,
    Pairs,
    Part,
    Ranks,
    RawCells,
    RowVectors,
)
from tacit.questions.sheet import PublicColumns, QuestionSheet

EDGES = (0.0, 25.0, 50.0, 75.0, 100.0)
PARTS: list[Part] = [
    Everybody(),
    Absent("sex"),
    Bins("age", EDGES),
    Ranks("age", EDGES),
    Moments(("age",), ((0.0, 100.0),)),
    Moments(("age",), ((0.0, 100.0),), squares=False),
    Moments(("age", "income"), ((0.0, 100.0), (-5.0, 5.0))),
    Pairs(("sex",), (("F", "M"),)),
    Pairs(("sex", "job"), (("F", "M"), ("nurse",))),
]
ANY = st.floats(allow_nan=True, allow_infinity=True)
WORDS = st.sampled_from(["F", "M", "nurse", "x", "", None])


def cells(age: float, income: float, sex: str | None, job: str | None) -> RawCells:
    texts = {"sex": np.array([sex], object), "job": np.array([job], object)}
    return RawCells(1, {"age": np.array([age]), "income": np.array([income])}, texts)


def dense(counted: Part | QuestionSheet, rows: RawCells) -> RowVectors:
    """Return the rows' vectors (n, width), by way of what is stored of them."""
    packed = counted.packed(rows)
    assert packed.shape == (rows.rows, counted.stored)
    entries = counted.entries(packed)
    assert entries.places.shape == entries.values.shape == (rows.rows, counted.support)
    assert (np.diff(entries.places, axis=1) > 0).all()
    return counted.vectors(rows)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
@given(age=ANY, income=ANY, sex=WORDS, job=WORDS)
def test_no_row_has_a_longer_vector_than_1(
    part: Part, age: float, income: float, sex: str | None, job: str | None
) -> None:
    vectors = dense(part, cells(age, income, sex, job))
    assert vectors.shape == (1, part.width)
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors.astype(np.float64)) <= 1 + 1e-7


@given(age=ANY, income=ANY, sex=WORDS, job=WORDS)
def test_all_questions_together_have_no_longer_one(
    age: float, income: float, sex: str | None, job: str | None
) -> None:
    texts = [
        "count", "missing sex", "histogram age 0 100 7", "quantile age 0.5", "mean income",
        "std age", "mean age", "counts by sex", "crosstab sex job", "correlation age income",
    ]  # fmt: skip
    public = PublicColumns(
        {"age": (0.0, 100.0), "income": (-5.0, 5.0)}, {"sex": ("F", "M"), "job": ("nurse",)}
    )
    sheet = QuestionSheet([parse(text) for text in texts], public, [1, 1, 1, 9, 1, 1, 1, 1, 1, 1])
    vectors = dense(sheet, cells(age, income, sex, job))
    assert np.linalg.norm(vectors.astype(np.float64)) <= 1 + 1e-6


def test_a_row_depends_on_no_other() -> None:
    rows = RawCells(
        3,
        {"age": np.array([10.0, np.nan, 99.0]), "income": np.array([1.0, 2.0, np.inf])},
        {"sex": np.array(["F", None, "x"], object), "job": np.array(["nurse"] * 3, object)},
    )
    for part in PARTS:
        together = dense(part, rows)
        for row in range(3):
            alone = RawCells(
                1,
                {name: values[row : row + 1] for name, values in rows.numbers.items()},
                {name: values[row : row + 1] for name, values in rows.texts.items()},
            )
            assert np.array_equal(dense(part, alone)[0], together[row])


def test_numbers_beyond_the_cells_are_counted_apart_and_missing_ones_too() -> None:
    ages = np.array([-1.0, 0.0, 25.0, 100.0, 100.5, np.nan, np.inf, -np.inf])
    counted = dense(Bins("age", EDGES), RawCells(8, {"age": ages}, {})).sum(axis=0)
    assert counted.tolist() == [1, 1, 0, 1, 2, 2, 1]  # cells, below, above, missing


def test_equal_parts_are_summed_up_once_and_have_the_weight_of_both() -> None:
    public = PublicColumns({"age": (0.0, 100.0)}, {})
    asked = [parse("mean age"), parse("std age"), parse("count")]
    sheet = QuestionSheet(asked, public)
    assert sheet.width == 3 + 1
    mean, deviation, count = sheet.asked
    assert mean.place == deviation.place
    assert mean.scale == pytest.approx(np.sqrt(2 / 3))
    assert count.scale == pytest.approx(np.sqrt(1 / 3))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
@given(stored=st.lists(st.floats(width=32), min_size=6, max_size=6))
def test_whatever_is_stored_is_a_vector_of_its_width(part: Part, stored: list[float]) -> None:
    packed = np.array([stored[: part.stored]], np.float32)
    assert part.entries(packed).dense(part.width).shape == (1, part.width)
    nothing = part.entries(np.zeros_like(packed)).dense(part.width)
    assert not nothing.any()


def test_of_thousands_of_answers_few_numbers_are_stored_of_a_row() -> None:
    texts = ["histogram age 0 100 1000", "quantile age 0.5", "quantile income 0.5", "mean age"]
    public = PublicColumns({"age": (0.0, 100.0)}, {})
    sheet = QuestionSheet([parse(text) for text in texts], public, unit_rows=3)
    assert (sheet.width, sheet.stored, sheet.support) == (1003 + 128 + 256 + 2, 5, 387)
    assert sheet.most_entries == 3 * 387


def test_more_answers_than_float32_can_number_are_refused() -> None:
    many = tuple(map(str, range(5_000)))
    public = PublicColumns({}, {"a": many, "b": many})
    with pytest.raises(ConfigError, match="25,020,004 answers"):
        QuestionSheet([parse("crosstab a b")], public)


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3, unique=True), max_size=6))
def test_vectors_that_are_summed_are_the_sum_of_vectors(rows: list[list[int]]) -> None:
    places = np.array(rows[: len(rows) // 2 * 2], np.int64).reshape(-1, 3)
    places.sort(axis=1)
    entries = Entries(places, (places + 1).astype(np.float32))
    summed = entries.summed(2)
    pairs = entries.dense(10).reshape(-1, 2, 10).sum(axis=1)
    assert np.array_equal(summed.dense(10), pairs)
    assert np.count_nonzero(summed.values) == np.count_nonzero(pairs)
