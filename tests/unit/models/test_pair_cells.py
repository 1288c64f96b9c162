"""Pairs of columns in an additive model: cells by public constants, shares, and a row's own bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tacit.models.additive import AdditiveModel
from tacit.models.bins import category_column, number_column
from tacit.models.pair_cells import OTHERS, PairCells
from tacit.models.zoo.as_modules import construction_of
from tests.unit.models.test_additive import COLUMNS, rows, targets

WIDE = category_column("town", 0, tuple("abcdefghij"), 10)
PAIRS = (PairCells(0, 1, COLUMNS[0], COLUMNS[1]), PairCells(0, 2, COLUMNS[0], COLUMNS[2]))


def paired(labels: int = 3) -> AdditiveModel:
    return AdditiveModel("additive", (5,), labels or 1, columns=COLUMNS, labels=labels, pairs=PAIRS)


def params(of: AdditiveModel, covered: tuple[bool, ...] = (True,) * 6) -> torch.Tensor:
    scores = torch.randn(of.size, generator=torch.Generator().manual_seed(3))
    return of.with_shares(scores, of.even_shares(np.array(covered)))


def test_a_row_is_in_the_cell_of_its_two_bins() -> None:
    of = paired()
    bins = of.bins_of(rows())
    age, job, income = (bins[:, place] - of.starts[place] for place in range(3))
    assert np.array_equal(bins[:, 3] - of.starts[3], age * 4 + job)
    assert np.array_equal(bins[:, 4] - of.starts[4], age * 5 + income)
    assert (bins[:, 5] == of.width - 1).all()


def test_cells_have_the_names_of_what_lies_in_them() -> None:
    pair = PairCells(0, 1, number_column("age", 0, 32, 0.0, 100.0), WIDE)
    assert pair.sides == (8, 8)
    assert pair.name == "age × town"
    assert str(pair.edges(0)) == "0 to 12.5 × a"
    assert str(pair.edges(63)) == f"87.5 to 100 × {OTHERS}"


@pytest.mark.parametrize("labels", [0, 2, 3])
@pytest.mark.parametrize(
    "covered", [(True,) * 6, (False, False, False, True, True, False), (True,) * 4 + (False, True)]
)
def test_a_vector_is_as_long_as_the_residual_whatever_is_covered(
    labels: int, covered: tuple[bool, ...]
) -> None:
    of = paired(labels)
    x, y, at = rows(), targets(labels), params(of, covered)
    residual = of.residuals_at(at, of.bins_of(x), y.numpy())
    entries = of.residuals(at, x, y)
    lengths = np.linalg.norm(entries.values.astype(np.float64), axis=1)
    assert np.allclose(lengths, np.linalg.norm(residual, axis=1), rtol=1e-5)
    assert entries.values.shape[1] == of.classes * sum(covered) <= of.most_entries


def test_scores_are_those_of_the_network_and_do_not_depend_on_shares() -> None:
    of = paired()
    x = rows()
    everything, columns = params(of), params(of, (True, True, True, False, False, True))
    expected = of.logits(everything, x)
    assert torch.equal(expected, of.logits(columns, x))
    assert np.allclose(of.scores_at(columns, of.bins_of(x)), expected.double(), atol=1e-5)
    kind, arguments = construction_of(of)
    network = kind(**arguments)
    network.load_state_dict(of.state(everything))
    assert torch.equal(network(x), expected)


def test_a_row_has_the_same_bits_alone() -> None:
    of = paired()
    x, y, at = rows(), targets(3), params(of)
    together = of.residuals(at, x, y)
    for place in range(len(x)):
        alone = of.residuals(at, x[place : place + 1], y[place : place + 1])
        assert np.array_equal(alone.values[0], together.values[place])
        assert np.array_equal(alone.places[0], together.places[place])


@pytest.mark.parametrize("share", [math.nan, math.inf])
def test_shares_of_a_hostile_server_make_entries_that_are_not_finite(share: float) -> None:
    """Such a row counts for nothing (`RoundedSums`)."""
    of = paired()
    at = of.with_shares(params(of), np.full(6, share))
    values = of.residuals(at, rows(), targets(3)).values
    assert not np.isfinite(values).all(axis=1).any()
