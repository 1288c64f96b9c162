"""Ranks from one noisy sum: exact without noise, and with little and equal noise."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.questions.rank_codes import codes, ranks


@pytest.mark.parametrize("cells", [2, 3, 64, 128, 256])
def test_without_noise_they_are_the_rows_below_each_edge(cells: int) -> None:
    counts = np.random.default_rng(1).integers(0, 1000, cells).astype(float)
    below = np.concatenate([[0.0], np.cumsum(counts)])
    measured = ranks(counts[None] @ codes(cells).astype(float))[0]
    assert np.allclose(measured, below - counts.sum() / 2, atol=1e-3 * counts.sum())


@pytest.mark.parametrize(("cells", "noise"), [(64, 1.806), (128, 2.026), (256, 2.247)])
def test_every_rank_has_the_same_noise_and_less_than_a_tree_leaves(
    cells: int, noise: float
) -> None:
    deviations = np.sqrt(np.square(ranks(np.eye(cells))).sum(axis=0))
    assert np.allclose(deviations, noise, rtol=1e-3)
    depth = np.log2(cells)
    assert noise < 0.7 * np.sqrt(depth * depth / 2)  # a binary tree's, on average
