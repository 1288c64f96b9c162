"""Slots that also count the units within the clip norm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.models import Layered
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum import counted as counting
from tacit.privacy.private_sum.counted import COUNTED_WAYS, SHARE, count_of, counted, share_within
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Plan, Releaser
from tests.helpers.private_sums import sum_of

MODEL = Layered("counted", (1, 1, 3), 2)
ROWS, CLIP = 40, 2.0


def data(rows: int = ROWS) -> EdgeRows:
    """Return rows of which the first half is long; the last is the public row."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(rows + 1, 1, 1, 3, generator=generator)
    x[: rows // 2] += 5
    y = (torch.arange(rows + 1) % 2).long()
    x[-1], y[-1] = 0, 0
    return EdgeRows(x, y)


def releaser(z: float = 1.0, mechanism: Any = "discrete_gaussian", seed: int = 1) -> Releaser:
    plan = Plan(mechanism, 1.0, ROWS, z, 1e-3, 100.0, math.inf, 1e-5, rows_max=ROWS)
    return Releaser(plan, Ledger(":memory:", "t"), Random(seed))


def released(of: Releaser, rows: EdgeRows, pushes: int, clip: float = CLIP) -> Tensor:
    """Return the last numbers (pushes,) of as many releases at weights of 0."""
    summed = sum_of(rows, MODEL, of, ways=COUNTED_WAYS)
    params = torch.zeros(MODEL.size)
    each = [of.release(clip, lambda: summed.compute(params, clip)) for _ in range(pushes)]
    return torch.stack([one.vector[-1] * one.scale for one in each]).double()


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.98, 1.99, 2.0, 2.01, 1e3, 1e30])
def test_a_counted_vector_is_never_longer_than_the_clip(size: float) -> None:
    """Rounding to float32 stays within half of the room that is left."""
    generator = torch.Generator().manual_seed(2)
    gradients = torch.randn(200, 50, generator=generator)
    gradients = size * gradients / torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
    vectors = counted(gradients, CLIP)
    assert torch.linalg.vector_norm(vectors.double(), dim=1).max() <= CLIP * (1 - 2.0**-16)
    within = size < CLIP * math.sqrt(1 - SHARE**2)
    assert torch.allclose(vectors[:, -1], torch.tensor(count_of(CLIP) * (1 if within else -1)))


def test_what_is_not_finite_counts_for_nothing() -> None:
    rows = data(4)
    rows.x[0, 0, 0, 0] = math.inf
    of = releaser()
    summed = sum_of(rows, MODEL, of, ways=COUNTED_WAYS)
    assert isinstance(summed, Slots)
    both = [torch.tensor([number]) for number in (0, 3)]
    masks = torch.ones(1, dtype=torch.bool)
    bad, good = (summed.clipped(torch.zeros(MODEL.size), CLIP, row, masks) for row in both)
    assert not bad.total.any()
    assert good.total[-1] > 0


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "gaussian"])
def test_the_share_of_units_within_is_unbiased(mechanism: str) -> None:
    """Half of the rows are within C' at weights of 0, and the estimate's mean says so."""
    pushes, z = 400, 1.0
    last = released(releaser(z, mechanism), data(), pushes)
    shares = torch.tensor([share_within(float(number), CLIP) for number in last])
    deviation = z / (2 * SHARE * ROWS)
    assert abs(shares.mean() - 0.5) < 5 * deviation / math.sqrt(pushes) + 1 / 400
    assert 0.85 < shares.std() / deviation < 1.15


def test_the_count_has_the_noise_of_every_other_number() -> None:
    """4,000 numbers have the deviation zC/L to 4 % with probability 1 - 10^-3."""
    last = released(releaser(2.0), data(), 4000)
    ratio = float(last.std()) / (2.0 * CLIP / ROWS)
    assert abs(ratio - 1) < 0.04
    assert all(abs(ratio / wrong - 1) > 0.04 for wrong in (2 / 3, 3 / 2))


def test_a_unit_moves_the_sum_by_the_clip_at_most() -> None:
    of = releaser()
    rows = data()
    summed = sum_of(rows, MODEL, of, ways=COUNTED_WAYS)
    assert isinstance(summed, Slots)
    params = torch.zeros(MODEL.size)
    everyone = torch.arange(ROWS)
    whole = summed.clipped(params, CLIP, everyone, torch.ones(ROWS, dtype=torch.bool))
    assert whole.step is not None
    for row in range(ROWS):
        without = summed.clipped(params, CLIP, everyone, everyone != row)
        moved = (whole.total - without.total).double() * whole.step
        assert float(torch.linalg.vector_norm(moved)) <= CLIP == whole.sensitivity


def test_a_person_with_several_rows_counts_once() -> None:
    rows = data()
    starts = np.arange(0, ROWS + 1, 4)
    people = EdgeRows(rows.x, rows.y, Units(np.arange(ROWS), starts, 4, mean=True))
    of = releaser()
    summed = sum_of(people, MODEL, of, ways=COUNTED_WAYS)
    assert isinstance(summed, Slots)
    units = torch.arange(len(starts) - 1)
    total = summed.clipped(
        torch.zeros(MODEL.size), CLIP, units, torch.ones(len(units), dtype=torch.bool)
    )
    assert total.step is not None
    assert abs(float(total.total[-1]) * total.step / count_of(CLIP)) <= len(units)


def test_a_gradient_that_is_not_cut_first_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: the count stands beside a gradient that has all of C, so clipping shortens both."""

    def uncut(gradients: Tensor, clip: float) -> Tensor:
        norms = torch.linalg.vector_norm(gradients, dim=1)
        signs = torch.where(norms <= clip, count_of(clip), -count_of(clip))
        return torch.cat([gradients, signs[:, None]], dim=1)

    monkeypatch.setattr(counting, "counted", uncut)
    last = released(releaser(0.01), data(), 20)
    shares = torch.tensor([share_within(float(number), CLIP) for number in last])
    assert abs(shares.mean() - 0.5) > 0.05
