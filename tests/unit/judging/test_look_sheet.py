"""A held-out row's vector: never longer than 1, and what it says of the row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.judging.look_sheet import BINS, CELLS, EVEN, LookSheet, NumberBounds

TWO = Target("classes", ("no", "yes"))
FIVE = Target("classes", tuple("abcde"))
NUMBER = Target("number", low=10.0, span=40.0)
BOUNDS = NumberBounds(0.0, 1.0, 0.25)
SHEETS = [LookSheet.of(TWO), LookSheet.of(FIVE), LookSheet.of(NUMBER, BOUNDS)]
ODD = [math.nan, math.inf, -math.inf, 1e30, 0.0, -0.0, 1e-45]


def answers_of(sheet: LookSheet, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    if sheet.bounds is not None:
        answers = torch.randn(rows, generator=generator)
        answers[: len(ODD)] = torch.tensor(ODD)
        return answers, torch.rand(rows, generator=generator)
    count = len(sheet.target.names)
    answers = torch.randn(rows, count, generator=generator).mul(4).softmax(1)
    for place, value in enumerate(ODD):
        answers[place] = value
    return answers, torch.randint(count, (rows,), generator=generator)


@pytest.mark.parametrize("sheet", SHEETS)
def test_no_row_is_longer_than_one(sheet: LookSheet) -> None:
    vectors = sheet.vectors(*answers_of(sheet, 500)).astype(np.float64)
    assert vectors.shape == (500, sheet.width)
    assert np.isfinite(vectors).all()
    lengths = np.linalg.norm(vectors, axis=1)
    assert lengths.max() <= 1 + 1e-6
    assert lengths.max() > 0.99 or sheet.bounds is not None


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_rows_vector_depends_on_no_other_row(sheet: LookSheet) -> None:
    answers, y = answers_of(sheet, 60)
    together = sheet.vectors(answers, y)
    for place in range(60):
        alone = sheet.vectors(answers[place : place + 1], y[place : place + 1])
        assert np.array_equal(together[place : place + 1], alone)


def test_of_two_classes_it_says_right_or_wrong_and_the_cell_of_the_probability() -> None:
    sheet = LookSheet.of(TWO)
    second = torch.tensor([0.0, 0.005, 0.49, 0.5, 0.999, 1.0])
    vectors = sheet.vectors(torch.stack((1 - second, second), 1), torch.tensor([0, 1, 1, 1, 0, 1]))
    guesses, scores = sheet.parts["guesses"], sheet.parts["scores"]
    right = vectors[:, guesses.place][:, 0] > 0
    assert right.tolist() == [True, False, False, True, False, True]
    cells = (vectors[:, scores.place] > 0).argmax(1)
    expected = [0, CELLS, CELLS + EVEN - 1, CELLS + EVEN, CELLS - 1, 2 * CELLS - 1]
    assert cells.tolist() == expected
    assert BINS[EVEN - 1] <= 0.49 < BINS[EVEN] == 0.5


def test_of_a_number_errors_are_cut_at_the_largest_that_counts() -> None:
    sheet = LookSheet.of(NUMBER, BOUNDS)
    vectors = sheet.vectors(torch.tensor([0.5, 0.6, 9.0]), torch.tensor([0.5, 0.5, 0.5]))
    errors = vectors[:, sheet.parts["errors"].place] * math.sqrt(3) / sheet.parts["errors"].scale
    assert errors.tolist() == [
        pytest.approx([1, 0, 0], abs=1e-5),
        pytest.approx([1, 0.4, 0.16], abs=1e-5),
        pytest.approx([1, 1, 1], abs=1e-5),
    ]


@pytest.mark.parametrize("kind", ["labels", "counts", "event", "text"])
def test_other_targets_are_refused_in_one_line(kind: str) -> None:
    target = Target(kind, ("a", "b"), high=3, cuts=(1.0,))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"judges classes.*and numbers"):
        LookSheet.of(target)
