"""Drawn rows of a graph are added up one by one, to the bit whatever their companions and places."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.models.graph.graph_model import GraphModel, RowGradient
from tacit.privacy.private_sum.clipping import clipped_sum, integer_sum
from tacit.privacy.private_sum.row_by_row import GraphSums
from tacit.privacy.private_sum.row_sums import Drawn, SumTerms
from tests.unit.graph.test_freezing import batch_of, built

ROWS, CLIP, STEP = 9, 0.5, 2.0**-12


def sum_of(sums: GraphSums, x: Tensor, y: Tensor, *, step: float | None = STEP) -> Tensor:
    terms = SumTerms(CLIP, step, ROWS)
    return sums.sum(sums.model.init(0), Drawn(x, y, np.arange(len(y))), terms).total


@pytest.mark.parametrize("name", ["mlp", "conv2d", "padded attention", "lstm", "low rank"])
def test_it_is_the_sum_of_the_rows_clipped_gradients(name: str) -> None:
    _, model, _ = built(name)
    x, y = batch_of(model, ROWS)
    write = model.row_gradient(model.init(0))
    gradients = torch.empty(ROWS, model.size)
    for row, label, gradient in zip(x, y, gradients, strict=True):
        write(row[None].clone(), label.clone(), gradient)
    everyone = torch.ones(ROWS, dtype=torch.bool)
    integers = integer_sum(gradients, CLIP, everyone, STEP)
    assert int((sum_of(GraphSums(model), x, y) - integers.total).abs().max()) <= ROWS
    floats = clipped_sum(gradients, CLIP, everyone)
    assert torch.allclose(sum_of(GraphSums(model), x, y, step=None), floats.total, atol=1e-9)


@pytest.mark.parametrize("name", ["mlp", "conv2d", "padded attention", "lstm"])
def test_a_row_adds_the_same_integers_whatever_its_companions(name: str) -> None:
    _, model, _ = built(name)
    x, y = batch_of(model, ROWS)
    sums = GraphSums(model)
    whole = sum_of(sums, x, y)
    for place in range(ROWS):
        others = [other for other in range(ROWS) if other != place]
        alone = sum_of(sums, x[place : place + 1], y[place : place + 1])
        assert torch.equal(whole - sum_of(sums, x[others], y[others]), alone)


class ByViews(GraphSums):
    """A mutant: a row goes through the graph where it lies in the matrix of all rows."""

    def _row(self, drawn: Drawn, place: int) -> tuple[Tensor, Tensor]:
        return drawn.x[place : place + 1], drawn.y[place]


class Watched(GraphModel):
    """A graph that notes where in memory it is given rows. addresses: of x, in order."""

    addresses: list[int]

    def row_gradient(self, params: Tensor) -> RowGradient:
        """As the graph's."""
        write = super().row_gradient(params)

        def noted(x: Tensor, y: Tensor, out: Tensor) -> None:
            self.addresses.append(x.data_ptr())
            write(x, y, out)

        return noted


def addresses(kind: type[GraphSums]) -> list[int]:
    """Return where the rows of an uneven width lie when they go through a graph."""
    _, model, _ = built("mlp")
    watched = Watched("mlp", model.shape, 3, checked=model.checked, values=model.values, labels=3)
    object.__setattr__(watched, "addresses", [])
    sum_of(kind(watched), *batch_of(model, ROWS))
    return watched.addresses


def test_every_row_lies_at_the_same_aligned_address() -> None:
    # A library's products round by the alignment of their operands.
    places = addresses(GraphSums)
    assert len(places) == ROWS
    assert len(set(places)) == 1
    assert places[0] % 64 == 0


def test_a_mutant_that_passes_views_of_the_rows_is_caught() -> None:
    assert len({place % 64 for place in addresses(ByViews)}) > 1


def test_a_row_that_is_not_finite_adds_nothing() -> None:
    _, model, _ = built("mlp")
    x, y = batch_of(model, ROWS)
    x[3] = float("nan")
    others = [place for place in range(ROWS) if place != 3]
    assert torch.equal(
        sum_of(GraphSums(model), x, y), sum_of(GraphSums(model), x[others], y[others])
    )
