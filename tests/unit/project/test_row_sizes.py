"""The sizes of public rows: their length, and the largest mean square along any direction."""

from __future__ import annotations

import numpy as np
import pytest
from tacit_services.project.row_sizes import row_sizes


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_sizes_are_those_of_the_whole_matrix(seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(500, 7)) * [5, 1, 1, 1, 0.1, 0.1, 0]
    sizes = row_sizes([rows[:100], rows[100:]])
    whole = np.hstack([rows, np.ones((500, 1))])
    assert sizes.length == pytest.approx(np.median(np.linalg.norm(whole, axis=1)))
    largest = np.linalg.eigvalsh(whole.T @ whole / 500)[-1]
    assert sizes.mean_square == pytest.approx(largest, rel=0.02)


def test_rows_of_zeros_have_the_bias_alone() -> None:
    sizes = row_sizes([np.zeros((3, 4))])
    assert (sizes.length, sizes.mean_square) == (1.0, 1.0)
