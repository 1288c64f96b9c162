"""Drawn rows of a graph are added up one by one, to the bit whatever their companions and places."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.audit.mutants_graphs import DrawsNumbers, KeepsState, LooksAtTheBatch
from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.models.graph.graph_model import GraphModel, RowGradient, write_parts
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.private_sum.clipping import clipped_sum, integer_sum
from tacit.privacy.private_sum.row_by_row import GraphSums
from tacit.privacy.private_sum.row_sums import Drawn, SumTerms
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.slots import UnitSlots
from tacit.privacy.release import Plan
from tests.unit.graph.test_freezing import batch_of, built

ROWS, CLIP, STEP = 9, 0.5, 2.0**-12


def sum_of(sums: GraphSums, x: Tensor, y: Tensor, *, step: float | None = STEP) -> Tensor:
    terms = SumTerms(CLIP, step, ROWS)
    return sums.sum(sums.model.init(0), Drawn(x, y, np.arange(len(y))), terms).total


@pytest.mark.parametrize("name", ["mlp", "conv2d", "padded attention", "lstm", "low rank"])
def test_it_is_the_sum_of_the_rows_clipped_gradients(name: str) -> None:
    _, model, _ = built(name)
    x, y = batch_of(model, ROWS)
    compute = model.row_gradient(model.init(0))
    gradients = torch.empty(ROWS, model.size)
    for row, label, gradient in zip(x, y, gradients, strict=True):
        write_parts(compute(row[None].clone(), label.clone()), gradient)
    everyone = torch.ones(ROWS, dtype=torch.bool)
    integers = integer_sum(gradients, CLIP, everyone, STEP)
    assert int((sum_of(GraphSums(model), x, y) - integers.total).abs().max()) <= ROWS
    floats = clipped_sum(gradients, CLIP, everyone)
    assert torch.allclose(sum_of(GraphSums(model), x, y, step=None), floats.total, atol=1e-9)


def depend(sums: GraphSums) -> list[int]:
    """Return the rows that add other integers alone than in company."""
    x, y = batch_of(sums.model, ROWS)
    whole = sum_of(sums, x, y)
    dependent = []
    for place in range(ROWS):
        others = [other for other in range(ROWS) if other != place]
        alone = sum_of(sums, x[place : place + 1], y[place : place + 1])
        if not torch.equal(whole - sum_of(sums, x[others], y[others]), alone):
            dependent.append(place)
    return dependent


@pytest.mark.parametrize("name", ["mlp", "conv2d", "padded attention", "lstm"])
def test_a_row_adds_the_same_integers_whatever_its_companions(name: str) -> None:
    _, model, _ = built(name)
    assert depend(GraphSums(model)) == []


class Dropping(GraphSums):
    """A mutant: a row goes through dropout first."""

    def _row(self, drawn: Drawn, place: np.int64) -> tuple[Tensor, Tensor]:
        x, y = super()._row(drawn, place)
        return functional.dropout(x), y


@pytest.mark.parametrize(
    "mutant", [KeepsState.kind, DrawsNumbers.kind, LooksAtTheBatch.kind, Dropping]
)
def test_mutants_of_an_operation_are_caught(mutant: type[GraphSums]) -> None:
    _, model, _ = built("mlp")
    assert depend(mutant(model))


class ByViews(GraphSums):
    """A mutant: a row goes through the graph where it lies in the matrix of all rows."""

    def _row(self, drawn: Drawn, place: np.int64) -> tuple[Tensor, Tensor]:
        return drawn.x[place : place + 1], drawn.y[place]


class Watched(GraphModel):
    """A graph that notes where in memory it is given rows. addresses: of x, in order."""

    addresses: list[int]

    def row_gradient(self, params: Tensor) -> RowGradient:
        """As the graph's."""
        compute = super().row_gradient(params)

        def noted(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            self.addresses.append(x.data_ptr())
            return compute(x, y)

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


UNITS = np.array([[0, 1, 2], [3, 4, 8], [5, 8, 8], [6, 7, 8]])  # row 8 is the public one
WEIGHTS = torch.tensor([[1 / 3] * 3, [0.5, 0.5, 0], [1, 0, 0], [0.5, 0.5, 0]])


def of_units(model: GraphModel, x: Tensor, y: Tensor, units: list[int]) -> Tensor:
    drawn = Drawn(x, y, UNITS[units], WEIGHTS[units])
    return GraphSums(model).sum(model.init(0), drawn, SumTerms(CLIP, STEP, ROWS)).total


@pytest.mark.parametrize("name", ["conv2d", "padded attention", "lstm"])
def test_a_units_rows_are_added_before_they_are_clipped(name: str) -> None:
    _, model, _ = built(name)
    x, y = batch_of(model, ROWS)
    compute = model.row_gradient(model.init(0))
    gradients = torch.empty(ROWS, model.size)
    for row, label, gradient in zip(x, y, gradients, strict=True):
        write_parts(compute(row[None].clone(), label.clone()), gradient)
    means = (gradients[torch.from_numpy(UNITS)] * WEIGHTS[:, :, None]).sum(1)
    expected = integer_sum(means, CLIP, torch.ones(4, dtype=torch.bool), STEP).total
    total = of_units(model, x, y, [0, 1, 2, 3])
    assert int((total - expected).abs().max()) <= len(UNITS)
    for unit in range(4):
        others = [other for other in range(4) if other != unit]
        alone = of_units(model, x, y, [unit])
        assert torch.equal(total - of_units(model, x, y, others), alone)


def test_a_unit_with_a_row_that_is_not_finite_adds_nothing_but_one_that_weighs_nothing_may() -> (
    None
):
    _, model, _ = built("mlp")
    x, y = batch_of(model, ROWS)
    usual = of_units(model, x, y, [0, 2, 3])
    x[4], x[8] = float("nan"), float("inf")
    assert torch.equal(of_units(model, x, y, [0, 1, 2, 3]), usual)


def people(rows: int, limit: int) -> EdgeRows:
    """Return rows of people, of whom the first has most, and the public row."""
    starts = np.array([0, rows - 4, rows - 2, rows])
    units = Units(np.arange(rows), starts, limit, True)
    x = torch.rand(rows + 1, 64, generator=torch.Generator().manual_seed(4))
    y = torch.arange(rows + 1) % 3
    x[rows] = 0
    return EdgeRows(x, y, units)


def large() -> GraphModel:
    """A network whose rows have much to compute."""
    model = module_model(
        "n:n",
        lambda: nn.Sequential(
            nn.Linear(64, 600), nn.GELU(), nn.Linear(600, 600), nn.Linear(600, 3)
        ),
        shape=(64,),
        outputs=3,
        loss=cross_entropy,
    )
    assert isinstance(model, GraphModel)
    return model


def test_an_edge_computes_the_units_that_it_drew_and_is_rehearsed_on_full_ones() -> None:
    model = large()
    plan = Plan("discrete_gaussian", 1.0, 3.0, 1.0, CLIP, CLIP, math.inf, 1e-5, rows_max=3)
    sums = private_sum(people(12, 4), model, plan, Random())
    assert isinstance(sums, RowsAlone)
    assert sums.way == GraphSums.way
    together = UnitSlots(people(12, 8), model, plan, Random())
    alone = private_sum(people(12, 8), model, plan, Random())  # every row of each counts
    params = model.init(0)
    first, second = (each.compute(params, CLIP).total for each in (alone, together))
    assert int((first - second).abs().max()) <= 8
    for work in sums.rehearsals():
        assert work().total.shape == (model.size,)
