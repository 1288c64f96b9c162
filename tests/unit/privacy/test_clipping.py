"""Clipping: whatever a record's gradient is, it moves the sum by at most C."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.privacy.private_sum.clipping import clipped_sum, integer_sum, outer_sum

steady = settings(
    derandomize=True,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # `way` is for all examples alike
)
numbers = st.one_of(
    st.floats(width=32),
    st.floats(-10, 10, width=32),
    st.sampled_from([0.0, 1e-45, 1e-20, 1e19, 1e30, 3e38]),
)
clips = st.floats(1e-6, 1e6)


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test on the compiled way and on its definition."""
    if request.param == "plain":
        monkeypatch.setattr("tacit.privacy.private_sum.clipping.library", lambda: None)


def tables(columns: int = 5) -> st.SearchStrategy[Tensor]:
    row = st.lists(numbers, min_size=columns, max_size=columns)
    return st.lists(row, min_size=1, max_size=6).map(
        lambda rows: torch.tensor(rows, dtype=torch.float32)
    )


def everyone(gradients: Tensor) -> Tensor:
    return torch.ones(len(gradients), dtype=torch.bool)


def norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector.to(torch.float64)))


def by_hand(gradients: Tensor, clip: float, mask: Tensor) -> Tensor:
    """Return the sum, one row at a time, in float64: the slow twin."""
    total = torch.zeros(gradients.shape[1], dtype=torch.float64)
    for row, drawn in zip(gradients.to(torch.float64), mask, strict=True):
        if drawn and bool(torch.isfinite(row).all()):
            total += row * min(1.0, clip / norm(row)) if norm(row) else row
    return total


@steady
@given(tables(), clips)
def test_each_contribution_is_at_most_c(gradients: Tensor, clip: float) -> None:
    for row in gradients:
        total = clipped_sum(row[None], clip, torch.tensor([True])).total
        assert bool(torch.isfinite(total).all())
        assert norm(total) <= clip


@steady
@given(tables(), clips, st.integers(0, 5))
def test_adding_or_removing_any_record_moves_the_sum_by_at_most_c(
    gradients: Tensor, clip: float, record: int
) -> None:
    mask = everyone(gradients)
    mask[record % len(gradients)] = False
    full, without = (
        clipped_sum(gradients, clip, everyone(gradients)),
        clipped_sum(gradients, clip, mask),
    )
    assert norm(full.total - without.total) <= full.sensitivity  # nothing is left to rounding
    assert full.sensitivity == without.sensitivity == clip


@pytest.mark.parametrize("ghost", [False, True])
def test_a_record_moves_a_sum_of_2300_rows_by_at_most_c(ghost: bool) -> None:
    """In float32, as it was once, rounding alone moved this sum by 0.1 C and more."""
    generator = torch.Generator().manual_seed(1)
    delta, x = (
        torch.rand(2300, 7, generator=generator) + 1,
        torch.rand(2300, 300, generator=generator) + 1,
    )
    rows = torch.cat(((delta.unsqueeze(2) * x.unsqueeze(1)).flatten(1), delta), 1)
    for record in (0, 1, 1150, 2299):
        mask = torch.arange(2300) != record
        both = [
            outer_sum(delta, x, 1.0, drawn).total if ghost else clipped_sum(rows, 1.0, drawn).total
            for drawn in (everyone(rows), mask)
        ]
        assert 0.999 < norm(both[0] - both[1]) <= 1.0


@pytest.mark.parametrize("ghost", [False, True])
def test_a_row_adds_the_same_whatever_stands_in_the_other_slots(ghost: bool) -> None:
    """Read the row's part off exactly.

    The others' gradients are so small, or so bad, that they add nothing.
    """
    generator = torch.Generator().manual_seed(2)
    delta, x = torch.rand(40, 3, generator=generator), torch.rand(40, 50, generator=generator)
    alone = torch.arange(40) == 17
    sums = []
    for spoilt in (0.0, 1e-45, math.nan, math.inf, 3e38):
        deltas, inputs = (
            torch.where(alone[:, None], delta, spoilt),
            torch.where(alone[:, None], x, spoilt),
        )
        rows = torch.cat(((deltas.unsqueeze(2) * inputs.unsqueeze(1)).flatten(1), deltas), 1)
        drawn = alone if spoilt == 1e-45 else everyone(rows)
        sums.append(
            outer_sum(deltas, inputs, 0.1, drawn).total
            if ghost
            else clipped_sum(rows, 0.1, drawn).total
        )
    assert all(torch.equal(sums[0], other) for other in sums)


def test_the_room_for_rounding_grows_with_the_batch_and_is_counted_over_all_its_parts() -> None:
    row = torch.tensor([[3.0, 4.0]])
    small, large = (norm(clipped_sum(row, 1.0, everyone(row), rows).total) for rows in (1, 2**23))
    assert large < small <= 1.0
    assert 1.0 - large == pytest.approx(2.0**-16 + 2 * 2.0**46 * 2.0**-52, rel=1e-3)
    with pytest.raises(ValueError, match="16777217 rows"):
        clipped_sum(row, 1.0, everyone(row), 2**24 + 1)


@pytest.mark.parametrize("columns", [1, 2047, 2048, 2049, 300_000, 3_000_000])
def test_the_norm_of_a_long_row_is_not_lost_to_rounding(columns: int) -> None:
    gradients = torch.full((1, columns), 1e-2)
    total = clipped_sum(gradients, 1e-3, torch.tensor([True])).total
    assert 1e-3 * (1 - 1e-4) < norm(total) <= 1e-3


@pytest.mark.parametrize("clip", [0.5, 3.0, 1e5])
def test_the_fast_sum_equals_the_slow_one(clip: float) -> None:
    gradients = torch.randn(20, 3000, generator=torch.Generator().manual_seed(1))
    mask = torch.arange(20) % 3 != 0
    total = clipped_sum(gradients, clip, mask).total
    assert torch.allclose(
        total.to(torch.float64), by_hand(gradients, clip, mask), rtol=1e-4, atol=1e-4 * min(clip, 1)
    )


def test_a_short_gradient_is_not_stretched() -> None:
    gradients = torch.tensor([[0.3, 0.4]])
    assert torch.equal(
        clipped_sum(gradients, 1.0, everyone(gradients)).total, gradients[0].double()
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_a_row_without_a_finite_norm_contributes_nothing(bad: float) -> None:
    good = torch.tensor([[0.1, 0.2], [0.3, -0.4]])
    spoilt = torch.cat((good, torch.tensor([[1.0, bad], [bad, bad]])))
    with_bad, without = (
        clipped_sum(spoilt, 1.0, everyone(spoilt)),
        clipped_sum(good, 1.0, everyone(good)),
    )
    assert torch.allclose(with_bad.total, without.total)


def test_a_masked_row_contributes_nothing_whatever_it_holds() -> None:
    gradients = torch.tensor([[0.1, 0.2], [math.nan, 1.0], [5.0, math.inf], [7.0, 7.0]])
    total = clipped_sum(gradients, 1.0, torch.tensor([True, False, False, False])).total
    assert torch.allclose(total, gradients[0].double())


@pytest.mark.parametrize("rows", [0, 3])
def test_an_empty_batch_is_a_zero_sum_of_the_same_sensitivity(rows: int) -> None:
    result = clipped_sum(torch.ones(rows, 4), 2.0, torch.zeros(rows, dtype=torch.bool))
    assert (result.total.tolist(), result.sensitivity) == ([0.0] * 4, 2.0)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf, 1e-30])
def test_a_clip_that_no_noise_can_scale_with_is_refused(clip: float) -> None:
    with pytest.raises(ValueError, match=r"^clip="):
        clipped_sum(torch.ones(1, 1), clip, torch.tensor([True]))


# -- on the grid: integers, so that the sensitivity holds without any rounding ---------------------

STEPS = st.sampled_from([1.0, 7.5, 100.0, 4095.9, 4096.0])  # clip / step


def moderate(columns: int = 5) -> st.SearchStrategy[Tensor]:
    row = st.lists(st.floats(-10, 10, width=32), min_size=columns, max_size=columns)
    return st.lists(row, min_size=1, max_size=6).map(
        lambda rows: torch.tensor(rows, dtype=torch.float32)
    )


@steady
@given(tables(), clips, STEPS)
def test_each_rows_integers_are_no_longer_than_the_clip(
    gradients: Tensor, clip: float, steps: float
) -> None:
    for row in gradients:
        units = integer_sum(row[None], clip, torch.tensor([True]), clip / steps).total
        assert units.dtype == torch.int64
        assert sum(unit**2 for unit in units.tolist()) <= steps**2 * (
            1 + 1e-9
        )  # whole numbers: no rounding here


@steady
@given(tables(), clips, STEPS, st.lists(st.booleans(), min_size=6, max_size=6))
def test_integers_are_added_exactly(
    gradients: Tensor, clip: float, steps: float, drawn: list[bool]
) -> None:
    mask = torch.tensor(drawn[: len(gradients)])
    alone = [
        integer_sum(row[None], clip, torch.tensor([True]), clip / steps).total for row in gradients
    ]
    expected = sum(
        (part for part, here in zip(alone, mask, strict=True) if here),
        torch.zeros(5, dtype=torch.int64),
    )
    result = integer_sum(gradients, clip, mask, clip / steps)
    assert torch.equal(result.total, expected)
    assert (result.sensitivity, result.step) == (clip, clip / steps)


@steady
@given(moderate(), st.floats(1e-3, 1e3), STEPS)
def test_the_grid_moves_the_sum_toward_zero_by_less_than_a_step_a_row(
    gradients: Tensor, clip: float, steps: float
) -> None:
    step = clip / steps
    for row in gradients:
        units = integer_sum(row[None], clip, torch.tensor([True]), step).total
        lost = by_hand(row[None], clip, torch.tensor([True])) / step - units
        slack = steps * 2.0**-15  # of the factor and of float32: 1/8 of a step at most
        assert float(lost.abs().max()) < 1 + slack
        assert bool((lost * row.sign() >= -slack).all())


def test_many_rows_are_added_beyond_what_float32_holds() -> None:
    rows = 5000
    gradients = torch.tensor([[1.0, 0.0]]).repeat(rows, 1)
    total = integer_sum(gradients, 1.0, everyone(gradients), 1 / 4096).total
    assert total.tolist() == [rows * 4095, 0]  # 2^24 is passed; each row is 4096·(1 - 2^-16), cut


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_a_row_without_a_finite_norm_gives_no_integers(bad: float) -> None:
    good = torch.tensor([[0.1, 0.2], [0.3, -0.4]])
    spoilt = torch.cat((good, torch.tensor([[1.0, bad], [bad, bad]])))
    with_bad, without = (
        integer_sum(rows, 1.0, everyone(rows), 1 / 1024) for rows in (spoilt, good)
    )
    assert torch.equal(with_bad.total, without.total)


@pytest.mark.parametrize("rows", [0, 3])
def test_an_empty_batch_is_a_sum_of_no_steps(rows: int) -> None:
    result = integer_sum(torch.ones(rows, 4), 2.0, torch.zeros(rows, dtype=torch.bool), 0.01)
    assert (result.total.tolist(), result.sensitivity) == ([0] * 4, 2.0)


def test_a_step_that_float32_cannot_square_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^step="):
        integer_sum(torch.ones(1, 1), 1.0, torch.tensor([True]), 1 / 4100)


@pytest.mark.parametrize(
    ("deltas", "x"), [(1.0, 2.8839533876540786e38), (1e-30, 1e35), (3e38, 1.0), (1e30, 1e30)]
)
def test_a_row_too_long_for_its_factor_contributes_nothing(deltas: float, x: float) -> None:
    total = outer_sum(
        torch.full((1, 1), deltas), torch.full((1, 1), x), 1.0235980655467622e-06, torch.ones(1) > 0
    ).total
    assert float(torch.linalg.vector_norm(total.double())) <= 1.0235980655467622e-06
    assert float(clipped_sum(torch.full((1, 2), 3e38), 1e-6, torch.ones(1) > 0).total.norm()) == 0.0
