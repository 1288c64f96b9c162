"""Histograms of residuals: every unit within C, whatever the model; their mean; their noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.models.additive import AdditiveModel
from tacit.models.vectors import example_gradients
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.histogram_sums import HistogramSums
from tacit.privacy.private_sum.rounded_sums import room
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Mechanism, Plan, Releaser
from tests.helpers.private_sums import sum_of
from tests.unit.models.test_additive import model, params, rows, targets
from tests.unit.models.test_pair_cells import paired
from tests.unit.models.test_pair_cells import params as paired_params

ROWS = 40
CLIP = 0.7


def data(labels: int, units: Units | None = None) -> EdgeRows:
    """Return the rows, and the public row after them."""
    y = targets(labels)
    return EdgeRows(torch.cat([rows(), torch.zeros(1, 5)]), torch.cat([y, y[:1] * 0]), units)


def plan(
    z: float = 20.0,
    count: int = ROWS,
    mechanism: Mechanism = "discrete_gaussian",
    rate: float = 1.0,
) -> Plan:
    return Plan(mechanism, rate, rate * count, z, 0.1, 10.0, math.inf, 1e-5, rows_max=count)


def summed(of: AdditiveModel, each: EdgeRows, by: Plan, seed: int = 1) -> HistogramSums:
    way = sum_of(each, of, Releaser(by, Ledger(":memory:", "t"), Random(seed)))
    assert isinstance(way, HistogramSums)
    return way


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3, 1e30, math.inf])
@pytest.mark.parametrize("z", [0.5, 20.0, 200.0])
def test_no_row_moves_a_histogram_by_more_than_the_clip(z: float, scale: float) -> None:
    of, by = model(3), plan(z, 1)
    at = torch.nan_to_num(params(of) * scale, nan=0.0)
    step = by.step(CLIP)
    assert step is not None
    longest = 0.0
    for row in range(ROWS):
        one = EdgeRows(rows()[[row, row]], targets(3)[[row, row]])
        total = summed(of, one, by, row).compute(at, CLIP).total
        assert int(total.square().sum()) <= (CLIP / step) ** 2 * (1 + 2.0**-40)
        longest = max(longest, float(total.double().norm()) * step)
    assert longest > 0.6 * CLIP * room(by, of.most_entries) or math.isinf(scale)


@pytest.mark.parametrize("share", [0.4, 1.0, 1e30, math.inf, math.nan])
def test_no_row_moves_a_histogram_with_pairs_by_more_than_the_clip(share: float) -> None:
    of, by = paired(), plan(0.5, 1)
    at = of.with_shares(0.3 * paired_params(of), np.full(6, share))
    step = by.step(CLIP)
    assert step is not None
    lengths = []
    for row in range(10):
        one = EdgeRows(rows()[[row, row]], targets(3)[[row, row]])
        total = summed(of, one, by, row).compute(at, CLIP).total
        lengths.append(float(total.double().norm()) * step)
    assert max(lengths) <= CLIP * (1 + 2.0**-40)
    assert max(lengths) > 0.5 * CLIP or not math.isfinite(share)


@pytest.mark.parametrize("labels", [0, 2, 3])
def test_the_mean_is_the_sum_of_clipped_gradients(labels: int) -> None:
    of, by = model(labels), plan()
    at = params(of)
    each = example_gradients(of, at, rows(), targets(labels)).double()
    shorter = (CLIP / each.norm(dim=1, keepdim=True)).clamp(max=1)
    exact = (each * shorter).sum(0)
    step = by.step(CLIP)
    assert step is not None
    drawn = torch.stack(
        [summed(of, data(labels), by, seed).compute(at, CLIP).total for seed in range(60)]
    )
    error = drawn.double().mean(0) * step / room(by, of.most_entries) - exact
    assert error.abs().max() < 5 * step / 2 * math.sqrt(ROWS / 60) + 1e-3
    assert exact.abs().max() > 0.5


@pytest.mark.parametrize("z", [0.8, 31.0])
def test_the_noise_of_a_histogram_is_that_of_the_plan(z: float) -> None:
    of, at = model(2), params(model(2))
    releaser = Releaser(plan(z), Ledger(":memory:", "t"), Random(3))
    way = sum_of(data(2), of, releaser)

    def released() -> Tensor:
        out = releaser.release(CLIP, lambda: way.compute(at, CLIP))
        return out.vector.double() * out.scale * ROWS

    drawn = torch.stack([released() for _ in range(400)])
    ratio = float(drawn.std(dim=0).square().mean().sqrt()) / (z * CLIP)
    assert 0.97 < ratio < 1.03  # at 2/3 or 3/2 of it, it fails


def test_all_rows_of_a_unit_are_cut_together() -> None:
    order = np.arange(ROWS, dtype=np.int64)
    units = Units(order, np.array([0, ROWS], np.int64), limit=ROWS, mean=False)
    of, by = model(2), plan(1.0, 1)
    sure = torch.zeros(2, of.width)
    sure[0, -1] = 1e4  # so that no rows' residuals cancel
    step = by.step(CLIP)
    assert step is not None
    total = summed(of, data(2, units), by).compute(sure.flatten(), CLIP).total
    assert 0.9 * CLIP < float(total.double().norm()) * step <= CLIP


def test_other_plans_go_through_gradients() -> None:
    of = model(2)
    for by in (plan(mechanism="gaussian"), plan(rate=0.5)):
        way = sum_of(data(2), of, Releaser(by, Ledger(":memory:", "t"), Random(1)))
        assert isinstance(way, Slots)
        assert way.compute(params(of), CLIP).total.double().abs().max() > 0


def test_a_rehearsal_of_a_histogram_reads_no_row() -> None:
    way = summed(model(2), data(2), plan(1.0, ROWS))
    way.x = torch.full_like(way.x, math.nan)
    (rehearse,) = way.rehearsals()
    assert rehearse().total.any()
