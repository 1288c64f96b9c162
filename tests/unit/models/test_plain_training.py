"""Plain training of an owner's rows: it learns what they tell, and no more than they tell."""

from __future__ import annotations

import pytest
import torch

from tacit.datasets import Dataset
from tacit.models import Model, build, evaluate
from tacit.models.plain_training import trained_alone


def rows(count: int, seed: int, *, flipped: float = 0.0) -> Dataset:
    """Return points of two numbers, and on which side of a line they lie."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, 1, 2, generator=generator)
    y = (x.sum((1, 2, 3)) > 1).long()
    other = torch.rand(count, generator=generator) < flipped
    return Dataset(x, torch.where(other, 1 - y, y), 2, "line")


def model() -> Model:
    return build("logistic", (1, 1, 2), 2)


@pytest.mark.parametrize(("count", "least"), [(400, 0.95), (40, 0.7)])
def test_it_learns_what_the_rows_tell(count: int, least: float) -> None:
    params = trained_alone(model(), model().init(0), rows(count, 1), 0)
    assert evaluate(model(), params, rows(2_000, 2))[0] > least


def test_what_tells_nothing_moves_nothing_far() -> None:
    """Of labels by chance, the rows that decide choose what is no worse than the start."""
    noise = rows(300, 3, flipped=0.5)
    start = torch.zeros(model().size)
    params = trained_alone(model(), start, noise, 0)
    assert evaluate(model(), params, rows(2_000, 4, flipped=0.5))[1] < 0.75  # log 2 is 0.69


def test_the_same_rows_and_seed_give_the_same_model() -> None:
    first, again = (trained_alone(model(), model().init(0), rows(100, 1), 7) for _ in range(2))
    assert torch.equal(first, again)
