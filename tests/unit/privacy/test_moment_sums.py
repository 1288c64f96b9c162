"""Second moments: every unit within C, sums exact but for the last bits, noise as it is due."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.errors import ConfigError
from tacit.models import Layered
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.moment_grid import (
    BESIDE_DIAGONAL,
    ON_DIAGONAL,
    MomentGrid,
    longest_before,
    moments_of,
)
from tacit.privacy.private_sum.moment_rows import MomentRows
from tacit.privacy.private_sum.moment_sums import MomentSums
from tacit.privacy.release import Plan, Releaser

D, K, ROWS = 7, 3, 200
MODEL = Layered("logistic", (D - 1,), K)
W = moments_of(D, K)


def plan(z: float = 3.0, count: int = ROWS) -> Plan:
    return Plan("discrete_gaussian", 1.0, count, z, 0.1, 10.0, math.inf, 1e-5, rows_max=count)


def rows(count: int = ROWS, length: float = 1.0, units: Units | None = None) -> EdgeRows:
    chance = torch.Generator().manual_seed(1)
    x = length * torch.randn(count + 1, D - 1, generator=chance)
    y = torch.randint(K, (count + 1,), generator=chance)
    x[-1], y[-1] = 0, 0
    return EdgeRows(x, y, units)


def sums(data: EdgeRows, of: Plan, seed: int = 1, weights: tuple[float, ...] = ()) -> MomentSums:
    return MomentSums(data, MODEL, MomentRows(D, K, weights), of, Random(seed))


def summed(data: EdgeRows, of: Plan, seed: int = 1) -> Tensor:
    return sums(data, of, seed).compute(torch.zeros(MODEL.size), 1.0).total


def exact(data: EdgeRows, of: Plan) -> torch.Tensor:
    """Return the moments of all rows in steps, in float64 and never rounded."""
    u, r = MomentRows(D, K).scaled(data.x[:-1].double().numpy(), data.y[:-1].numpy())
    square = BESIDE_DIAGONAL / ON_DIAGONAL * (u.T @ u)
    np.fill_diagonal(square, (u * u).sum(axis=0))
    both = np.concatenate([square[np.triu_indices(D)], (u.T @ r).ravel()])
    return torch.from_numpy(both) * MomentGrid.of(of, D, K).unit


@pytest.mark.parametrize("z", [0.5, 4.0, 60.0, 300.0])
@pytest.mark.parametrize("length", [0.0, 1e-6, 1.0, 1e6, 1e30])
def test_no_row_moves_the_sum_by_more_than_the_clip(z: float, length: float) -> None:
    of = plan(z)
    step = of.step(1.0)
    assert step is not None
    before, after = rows(50, length), rows(51, length)
    after.x[:50], after.y[:50] = before.x[:50], before.y[:50]
    for seed in range(20):  # the same random words for both, as the proof couples them
        apart = summed(after, of, seed) - summed(before, of, seed)
        assert float(apart.double().norm()) <= 1 / step


def test_a_rows_whole_numbers_have_the_length_that_the_proof_has() -> None:
    way = sums(rows(), plan())
    assert way.grid is not None
    (block,) = way._units()
    x, y = way.whole(block, way.grid.scale)
    assert np.array_equal(x, np.trunc(x))
    assert np.array_equal(y, np.trunc(y))
    for u, r in zip(x, y, strict=True):
        outer = BESIDE_DIAGONAL * np.outer(u, u)
        np.fill_diagonal(outer, ON_DIAGONAL * u * u)
        both = np.concatenate([outer[np.triu_indices(D)], ON_DIAGONAL * np.outer(u, r).ravel()])
        length = np.linalg.norm(both)
        assert length <= ON_DIAGONAL * math.sqrt((u @ u) * (u @ u + r @ r)) * (1 + 1e-12)
        assert 0.995 * ON_DIAGONAL * way.grid.length**2 < length
        assert length <= ON_DIAGONAL * way.grid.length**2


def test_one_entry_beside_the_diagonal_stands_for_two() -> None:
    assert 0.9995 < BESIDE_DIAGONAL / (ON_DIAGONAL * math.sqrt(2)) <= 1


@pytest.mark.parametrize("longer", [1.01, 1.2, 100.0])
def test_a_unit_that_is_too_long_counts_for_nothing(longer: float) -> None:
    way = sums(rows(), plan())
    assert way.grid is not None
    (block,) = way._units()
    assert np.all(way.whole(block, way.grid.scale)[0].any(axis=1))
    assert not way.whole(block, way.grid.scale * longer)[0].any()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_no_number_counts_for_nothing(number: float) -> None:
    data = rows(1)
    data.x[0, 2] = number
    assert not summed(data, plan(1.0)).any()


@pytest.mark.parametrize("z", [1.0, 40.0])
def test_cutting_bits_off_leaves_the_mean_as_it_is(z: float) -> None:
    data, of = rows(), plan(z)
    drawn = torch.stack([summed(data, of, seed) for seed in range(200)]).double()
    error = drawn.mean(dim=0) - exact(data, of)
    step = of.step(1.0)
    assert step is not None
    of_cutting = ROWS / step * 2e-4  # toward zero, a part of 10^4 of a row
    assert error.abs().max() < 5 * 0.5 / math.sqrt(200) + of_cutting
    assert drawn.std(dim=0).max() < 0.7  # once, and not once for each row


def test_a_vector_before_rounding_leaves_room_for_it() -> None:
    generator = torch.Generator().manual_seed(2)
    for most, moments in ((100.0, 2_000), (546.0, 137_000)):
        longest = longest_before(most, moments)
        worst = torch.rand(moments, generator=generator) + 0.001
        worst = worst * longest / worst.norm()
        for _ in range(20):
            rounded = torch.floor(worst + torch.rand(moments, generator=generator))
            assert rounded.norm() <= most
    assert longest_before(546.0, 137_000) > 0.9 * 546.0


def test_noise_that_leaves_nothing_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="a larger ε, or fewer numbers"):
        MomentGrid.of(plan(400.0), 500, 10)
    with pytest.raises(ConfigError, match="at most 4,095 are taken"):
        MomentGrid.of(plan(1.0), 5000, 10)


@pytest.mark.parametrize("mean", [False, True])
def test_a_persons_rows_count_as_one_row(mean: bool) -> None:
    limit = 4
    several = Units(np.arange(6), np.array([0, 6]), limit, mean)
    data = rows(6, units=several)
    data.x[:6], data.y[:6] = data.x[0], data.y[0]
    single = rows(1)
    single.x[0], single.y[0] = data.x[0], data.y[0]
    of = plan(0.5)
    apart = summed(data, of) - summed(single, of)
    assert apart.abs().max() <= 2
    fewer = rows(1, units=Units(np.arange(1), np.array([0, 1]), limit, mean))
    part = summed(fewer, of).double().norm() / summed(rows(1), of).double().norm()
    assert float(part) == pytest.approx(1.0 if mean else 1 / limit, rel=0.01)


def test_class_weights_make_rows_shorter_and_never_longer() -> None:
    data, of = rows(1), plan(0.5)
    data.y[0] = 2
    whole = summed(data, of).double()
    part = sums(data, of, weights=(1.0, 1.0, 0.25)).compute(torch.zeros(MODEL.size), 1.0)
    assert float(part.total.double().norm() / whole.norm()) == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize("z", [0.8, 31.0])
def test_the_noise_is_that_of_the_plan(z: float) -> None:
    data, of = rows(20), plan(z, 20)
    releaser = Releaser(of, Ledger(":memory:", "t"), Random(3))
    way = MomentSums(data, MODEL, MomentRows(D, K), of, releaser.random)
    step = of.step(1.0)
    assert step is not None
    clean = exact(data, of)

    def released() -> Tensor:
        out = releaser.release(1.0, lambda: way.compute(torch.zeros(MODEL.size), 1.0))
        return out.vector.double() * out.scale * 20 / step - clean

    noise = torch.stack([released() for _ in range(100)])
    grid = MomentGrid.of(of, D, K)
    ratio = float(noise.square().mean().sqrt()) / grid.deviation
    assert 0.96 < ratio < 1.04  # at 2/3 or 3/2 of it, it fails


def test_rehearsals_touch_no_row() -> None:
    data = rows()
    data.x[:] = math.nan
    (rehearsal,) = sums(data, plan()).rehearsals()
    assert rehearsal().total.any()
