"""Numbers in words: what is spent is never less, what is left never more, a broken bound never kept."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.rounding import beside, decimal, down, epsilon, guess, odds, up

EPSILONS = json.loads((Path(__file__).parent.parent / "snapshots" / "epsilon.json").read_text())
NUMBERS = st.floats(min_value=1e-12, max_value=1e12)


@given(NUMBERS, st.integers(min_value=1, max_value=8))
def test_up_is_no_less_and_down_no_more(value: float, digits: int) -> None:
    above, below = float(up(value, digits)), float(down(value, digits))
    assert above >= value * (1 - 2e-9)
    assert below <= value * (1 + 2e-9)
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)  # both in the digits asked for
    assert above - value <= unit * (1 + 1e-6)
    assert value - below <= unit * (1 + 1e-6)


@given(NUMBERS)
def test_an_epsilon_is_no_less_and_has_four_digits(value: float) -> None:
    text = epsilon(value)
    assert float(text) >= value * (1 - 2e-9)
    assert float(text) <= max(value * 1.001, value + 1e-6) * (1 + 1e-6)
    assert len(text.partition(".")[2]) <= 6


@pytest.mark.parametrize(("value", "expected"), EPSILONS)
def test_an_epsilon_is_written_as_on_the_page(value: float, expected: str) -> None:
    assert epsilon(value) == expected


@given(NUMBERS, st.floats(min_value=0.999, max_value=1.001))
def test_two_that_are_beside_each_other_read_in_their_order(value: float, factor: float) -> None:
    bound = value * factor
    lower, upper = float(beside(value, bound)), float(beside(bound, value))
    assert (lower > upper, lower < upper) == (value > bound, value < bound)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (up(3.99961), "4"),
        (up(6.24201), "6.243"),
        (up(4.000000000001), "4"),  # two ways to add the same up
        (up(0.0), "0"),
        (up(math.inf), "inf"),
        (down(0.03999), "0.03999"),
        (down(1.99999), "1.999"),
        (down(0.0), "0"),
        (epsilon(math.inf), "∞"),
        (beside(0.996, 1, 2), "0.996"),
        (beside(0.5, 1, 2), "0.5"),
        (beside(1.00004, 1), "1.00004"),
        (beside(1234.5678, 1234.5671, 4), "1234.568"),
        (beside(math.nan, 1), "nan"),
        (beside(1.0, 1.0), "1"),
    ],
)
def test_as_it_is_read(text: str, expected: str) -> None:
    assert text == expected


@given(st.floats(min_value=0.0, max_value=20.0))
def test_what_an_epsilon_means_is_no_less_than_it_is(value: float) -> None:
    least = float(odds(value).replace(",", ""))
    assert math.exp(value) * (1 - 1e-9) <= least <= math.exp(value) * 1.1
    sure = guess(value)
    exact = 100 * math.exp(value) / (1 + math.exp(value))
    if sure is None:
        assert exact > 99.9
    else:
        assert exact * (1 - 1e-9) <= float(sure.removesuffix(" %")) <= exact + 0.1


def test_what_an_epsilon_means_is_said_as_to_a_privacy_officer() -> None:
    assert [odds(value) for value in (1.0, 2.0, 4.0, 6.0)] == ["2.8", "7.4", "55", "404"]
    assert [guess(value) for value in (0.0, 1.0, 6.0, 20.0)] == ["50 %", "73.2 %", "99.8 %", None]
    document = Path(__file__).parents[2] / "docs" / "privacy-officer.md"
    assert "404 times: a guess that was 50:50 could become 99.8 %" in document.read_text()


@pytest.mark.parametrize("value", [1e-5, 0.25, 3.0, 1e-12])
def test_a_decimal_has_no_exponent(value: float) -> None:
    assert "e" not in decimal(value)
    assert float(decimal(value)) == value
