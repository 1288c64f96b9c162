"""Rules against their definitions, number by number."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.robust import rules
from tacit.robust.rules import Rule, combine


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_rules_are_as_defined_for_every_number(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    vectors = [torch.randn(7, generator=generator, dtype=torch.float64) for _ in range(count)]
    columns = [[float(vector[k]) for vector in vectors] for k in range(7)]
    expected = [statistics.median(column) for column in columns]
    assert combine("median", vectors, 1).tolist() == pytest.approx(expected)
    for trim in (1, 2, 5):
        cut = min(trim, (count - 1) // 2)
        trimmed = [sorted(column)[cut : count - cut] for column in columns]
        expected = [statistics.fmean(column) for column in trimmed]
        assert combine("trimmed", vectors, trim).tolist() == pytest.approx(expected)
    assert torch.equal(combine("mean", vectors, 1), torch.stack(vectors).mean(0))


@pytest.mark.parametrize(("rule", "bears"), [("median", True), ("trimmed", True), ("mean", False)])
def test_two_of_five_move_the_mean_and_nothing_else(rule: Rule, bears: bool) -> None:
    vectors = [torch.full((3,), float(k)) for k in range(3)] + [torch.full((3,), 9.9e5)] * 2
    assert bool((combine(rule, vectors, 2) <= 2).all()) is bears


@pytest.mark.parametrize("count", [2, 5, 10, 25])
def test_rules_are_those_of_numpy_and_scipy_also_where_they_are_computed_in_parts(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "SORTED", 40)
    matrix = torch.randn(count, 101, generator=torch.Generator().manual_seed(count))
    vectors, table = list(matrix), matrix.numpy()
    assert combine("median", vectors, 1).numpy() == pytest.approx(np.median(table, axis=0))
    trim = max(1, count // 5)
    cut = (min(trim, (count - 1) // 2) + 0.5) / count  # scipy rounds down
    expected = stats.trim_mean(table, cut, axis=0)
    assert combine("trimmed", vectors, trim).numpy() == pytest.approx(expected, abs=1e-6)
