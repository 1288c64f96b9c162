"""The private sum of whole rows: every unit within C, its mean as it is, its noise as it is due."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.models.sums_model import SumsModel
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.rounded_sums import room
from tacit.privacy.private_sum.whole_sums import WholeSums
from tacit.privacy.release import Plan, Releaser
from tacit.questions.question import parse
from tacit.questions.row_parts import Entries, RawCells
from tacit.questions.sheet import PublicColumns, QuestionSheet
from tests.helpers.private_sums import sum_of

WIDTH, ROWS = 50, 300
MODEL = SumsModel("sums", (WIDTH,), 1)


def rows(count: int = ROWS, length: float = 1.0, units: Units | None = None) -> EdgeRows:
    """Return rows of this length, and the public row after them."""
    x = torch.rand(count + 1, WIDTH, generator=torch.Generator().manual_seed(1))
    x = length * x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
    x[-1] = 0
    return EdgeRows(x, torch.zeros(count + 1), units)


def plan(z: float = 30.0, count: int = ROWS, mechanism: Any = "discrete_gaussian") -> Plan:
    return Plan(mechanism, 1.0, count, z, 0.1, 10.0, math.inf, 1e-5, rows_max=count)


def summed(data: EdgeRows, of: Plan, seed: int = 1) -> WholeSums:
    way = sum_of(data, MODEL, Releaser(of, Ledger(":memory:", "t"), Random(seed)))
    assert isinstance(way, WholeSums)
    return way


@pytest.mark.parametrize("z", [0.5, 30.0, 300.0])
@pytest.mark.parametrize("length", [0.0, 0.5, 1.0, 1.001, 1e6, math.inf, math.nan])
def test_no_unit_moves_the_sum_by_more_than_the_clip(z: float, length: float) -> None:
    one = rows(1, length) if math.isfinite(length) else rows(1)
    if not math.isfinite(length):
        one.x[0, 3] = length
    of = plan(z, 1)
    step = of.step(1.0)
    assert step is not None
    for seed in range(200):
        total = summed(one, of, seed).compute(torch.zeros(WIDTH), 1.0).total
        assert int(total.square().sum()) <= (1.0 / step) ** 2 * (1 + 2.0**-40)
        assert math.isfinite(length) or not total.any()


@pytest.mark.parametrize("z", [3.0, 30.0, 120.0])
def test_rounding_leaves_the_mean_of_every_number_as_it_is(z: float) -> None:
    data, of = rows(), plan(z)
    step = of.step(1.0)
    assert step is not None
    exact = -data.x[:-1].double().sum(dim=0)
    drawn = torch.stack(
        [summed(data, of, seed).compute(torch.zeros(WIDTH), 1.0).total for seed in range(60)]
    )
    drawn_sum = drawn.double() * step / room(of, WIDTH)
    error = drawn_sum.mean(dim=0) - exact
    # Rounding to the grid has a deviation of half a step at most for each row.
    allowed = 5 * step / 2 * math.sqrt(ROWS / 60) / room(of, WIDTH)
    assert error.abs().max() < allowed
    # Cut toward zero it would be off by half a step for each row.
    assert allowed < 0.25 * ROWS * step / 2


def test_of_a_long_vector_little_is_lost() -> None:
    for z in (1.0, 10.0, 40.0):
        assert 0.97 < room(plan(z), 2_000) <= 1
    assert room(plan(1.0, mechanism="gaussian"), 2_000) == 1


@pytest.mark.parametrize("z", [0.8, 31.0])
def test_the_noise_is_that_of_the_plan(z: float) -> None:
    data = rows(20)
    releaser = Releaser(plan(z, 20), Ledger(":memory:", "t"), Random(3))
    way = sum_of(data, MODEL, releaser)
    exact = -data.x[:-1].double().sum(dim=0)
    shorter = room(releaser.plan, WIDTH)

    def released() -> Tensor:
        out = releaser.release(1.0, lambda: way.compute(torch.zeros(WIDTH), 1.0))
        return out.vector.double() * out.scale * 20 / shorter - exact

    noise = torch.stack([released() for _ in range(100)])
    ratio = float(noise.square().mean().sqrt()) / (z / shorter)
    assert 0.96 < ratio < 1.04  # at 2/3 or 3/2 of it, it fails


def test_a_units_rows_count_together_and_no_more_than_are_stated() -> None:
    order = np.arange(6, dtype=np.int64)
    units = Units(order, np.array([0, 1, 3, 6], np.int64), limit=2, mean=False)
    data = EdgeRows(torch.zeros(7, WIDTH), torch.zeros(7), units)
    data.x[:6, 0] = 0.5
    of = plan(1.0, 3)
    step = of.step(1.0)
    assert step is not None
    totals = [
        float(summed(data, of, seed).compute(torch.zeros(WIDTH), 1.0).total[0]) * step
        for seed in range(50)
    ]
    assert np.mean(totals) / room(of, WIDTH) == pytest.approx(-(0.5 + 1 + 1), rel=1e-3)


TEXTS = ("mean age", "quantile age 0.5", "count")
ONE_HOT = ("histogram age 0 100 40", "counts by sex", "missing sex", "std age")
PUBLIC = PublicColumns({"age": (0.0, 100.0)}, {"sex": ("f", "m")})


def people(count: int = ROWS) -> RawCells:
    random = np.random.default_rng(7)
    age = np.where(random.random(count) < 0.1, np.nan, random.uniform(0, 100, count))
    sex, town = random.choice(np.array(["f", "m", "x", None], object), (2, count))
    return RawCells(count, {"age": age}, {"sex": sex, "town": town})


class DenseModel(SumsModel):
    """Of rows that are the vectors themselves, most of whose numbers are 0."""

    most_entries = 0  # as the packed rows'


def packed_and_dense(texts: tuple[str, ...]) -> list[tuple[EdgeRows, SumsModel]]:
    """Return the same rows as an edge stores them, and as vectors."""
    sheet = QuestionSheet([parse(text) for text in texts], PUBLIC)
    packed = sheet.packed(people())
    dense = DenseModel("sums", (sheet.width,), 1)
    object.__setattr__(dense, "most_entries", sheet.most_entries)
    return [
        (EdgeRows(torch.from_numpy(np.append(x, x[:1] * 0, axis=0)), torch.zeros(ROWS + 1)), model)
        for x, model in (
            (packed, SumsModel("sums", (sheet.stored,), 1, sheet=sheet)),
            (sheet.entries(packed).dense(sheet.width), dense),
        )
    ]


class HalfRandom(Random):
    """Each word is the same, so that zeros take none makes no difference."""

    def bytes(self, count: int) -> bytes:
        return b"\x80" * count


@pytest.mark.parametrize("z", [1.0, 30.0])
@pytest.mark.parametrize(("texts", "kind"), [(TEXTS, Random), (ONE_HOT, HalfRandom)])
def test_packed_rows_have_the_sum_of_their_vectors_to_the_bit(
    texts: tuple[str, ...], kind: type[Random], z: float
) -> None:
    packed, dense = (
        WholeSums(data, model, plan(z), kind(1)).compute(torch.zeros(model.size), 1.0).total
        for data, model in packed_and_dense(texts)
    )
    assert packed.any()
    assert torch.equal(packed, dense)


@pytest.mark.parametrize("texts", [ONE_HOT, TEXTS, ("counts by town", "count")])
def test_a_packed_units_rows_are_added_before_they_are_rounded(texts: tuple[str, ...]) -> None:
    sheet = QuestionSheet([parse(text) for text in texts], PUBLIC, unit_rows=2)
    packed = sheet.packed(people())
    model = SumsModel("sums", (sheet.stored,), 1, sheet=sheet)
    starts = np.arange(0, ROWS + 1, 2, dtype=np.int64)
    units = Units(np.arange(ROWS, dtype=np.int64), starts, limit=2, mean=False)
    x = torch.from_numpy(np.append(packed, packed[:1] * 0, axis=0))
    exact = -sheet.entries(packed).dense(sheet.width).sum(axis=0, dtype=np.float64)
    of = plan(1.0, ROWS // 2)
    step = of.step(1.0)
    assert step is not None
    way = WholeSums(EdgeRows(x, torch.zeros(ROWS + 1), units), model, of, Random(1))
    total = way.compute(torch.zeros(model.size), 1.0).total.numpy() * step
    # Two rows of one place are one entry of the unit: it is rounded once, within a step.
    assert np.abs(total / room(of, sheet.most_entries) - exact).max() < 30 * step
    assert sheet.most_entries == min(sheet.width, 2 * sheet.support)


def test_a_unit_whose_rows_are_alike_is_no_longer_than_the_clip() -> None:
    sheet = QuestionSheet([parse("counts by town"), parse("count")], PUBLIC, unit_rows=2)
    x = torch.from_numpy(sheet.packed(people(2)))
    units = Units(np.zeros(2, np.int64), np.array([0, 2], np.int64), limit=2, mean=False)
    of = plan(1.0, 1)
    step = of.step(1.0)
    assert step is not None
    model = SumsModel("sums", (sheet.stored,), 1, sheet=sheet)
    way = WholeSums(EdgeRows(x, torch.zeros(2), units), model, of, Random(1))
    total = way.compute(torch.zeros(model.size), 1.0).total
    assert 0.98 < float(total.double().norm()) * step <= 1


def test_a_vector_with_two_entries_at_one_place_counts_for_nothing() -> None:
    class Twice(SumsModel):
        def entries(self, x: Tensor) -> Entries:
            entries = super().entries(x)
            places = entries.places.copy()
            places[0, 1] = places[0, 0]
            return Entries(places, entries.values)

    of = plan(1.0, 1)
    way = WholeSums(rows(1), Twice("sums", (WIDTH,), 1), of, Random(1))
    assert not way.compute(torch.zeros(WIDTH), 1.0).total.any()


def test_room_is_that_of_the_entries_and_not_of_the_width() -> None:
    of = plan(120.0)
    assert 0.9 < room(of, 40) < 1
    assert room(of, 40_000) < 0.7 < room(of, 40)


def test_it_takes_no_plan_that_samples_rows() -> None:
    sampled = Plan("discrete_gaussian", 0.5, 10, 1.0, 0.1, 10.0, math.inf, 1e-5, rows_max=20)
    with pytest.raises(ValueError, match="reads every row"):
        WholeSums(rows(20), MODEL, sampled, Random(1))


def test_a_rehearsal_reads_no_row_and_does_the_work_of_the_most_rows() -> None:
    way = summed(rows(5), plan(1.0, 5))
    way.x = torch.full_like(way.x, math.nan)
    (rehearse,) = way.rehearsals()
    assert rehearse().total.any()
