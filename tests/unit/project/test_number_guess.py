"""The scale of a number, guessed from a public sample."""

from __future__ import annotations

import numpy as np
import pytest
from tacit_services.project.number_guess import number_guess


def test_a_normal_number_has_its_deviation() -> None:
    values = np.random.default_rng(1).normal(50, 8, size=4000)
    assert number_guess(values, counts=False).scale == pytest.approx(8, rel=0.05)


def test_a_long_tail_on_both_sides_does_not_make_a_column_wide() -> None:
    """Of a number without a logarithm, nine tenths lie within 3.3 scales."""
    chance = np.random.default_rng(2)
    values = chance.normal(size=4000) * np.exp(1.5 * chance.normal(size=4000))
    guess = number_guess(values, counts=False)
    low, high = np.quantile(values, (0.05, 0.95))
    assert not guess.log
    assert (high - low) / guess.scale <= 3.4


def test_a_number_that_hardly_varies_has_a_scale_above_zero() -> None:
    assert number_guess(np.zeros(50), counts=False).scale == 1.0
    assert number_guess(np.r_[np.zeros(990), np.ones(10)], counts=False).scale > 0
