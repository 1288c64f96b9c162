"""Parts are disjoint, cover every row once, never move, and have the sizes that were asked for."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.datasets.partition import _dirichlet_sample, all_shards, nominal_size, shard
from tacit.errors import ConfigError

METHODS = ("iid", "dirichlet", "shards")
LABELS = torch.arange(1000) % 10
HEADS = {
    "iid": [17, 18, 29, 30, 36, 37],
    "dirichlet": [9, 17, 27, 37, 49, 63],
    "shards": [2, 3, 13, 22, 23, 32],
}  # fmt: skip


def layouts() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "shards": st.integers(1, 12),
            "spare": st.integers(0, 4),
            "spare_weight": st.sampled_from([0.1, 0.25, 1.0]),
            "method": st.sampled_from(METHODS),
            "seed": st.integers(0, 2**63 - 1),
            "alpha": st.sampled_from([1e-4, 0.1, 0.5, 100.0]),
        }
    )


@settings(max_examples=150, deadline=None)
@given(layouts(), st.integers(16, 120), st.integers(1, 10))
def test_parts_are_disjoint_not_empty_and_cover_every_row(layout: dict[str, Any], rows: int, classes: int) -> None:
    labels = torch.arange(rows) * 7 % classes
    parts = [shard(labels, index, **layout) for index in range(layout["shards"] + layout["spare"])]
    assert sorted(torch.cat(parts).tolist()) == list(range(rows))
    assert all(len(part) > 0 and part.dtype == torch.int64 for part in parts)
    again = all_shards(labels, **layout)
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 20), st.integers(0, 8), st.sampled_from([0.1, 0.25, 0.5, 1.0]), st.integers(400, 2000))
def test_iid_parts_have_the_public_size_or_one_row_more(
    shards: int, spare: int, spare_weight: float, rows: int
) -> None:
    layout = {"shards": shards, "spare": spare, "spare_weight": spare_weight}
    public = nominal_size(rows, **layout)  # type: ignore[arg-type]
    parts = all_shards(torch.zeros(rows, dtype=torch.int64), method="iid", seed=1, **layout)  # type: ignore[arg-type]
    assert {len(part) - public for part in parts[:shards]} <= {0, 1}
    exact = spare_weight * rows / (shards + spare * spare_weight)
    assert all(abs(len(part) - exact) < 1 for part in parts[shards:])


@pytest.mark.parametrize(
    ("rows", "shards", "spare", "weight", "expected"),
    [
        (60_000, 5, 0, 0.25, 12_000),
        (60_000, 5, 2, 0.25, 10_909),
        (60_000, 5, 10, 0.1, 10_000),
        (7, 3, 0, 1.0, 2),
    ],
)
def test_nominal_size_by_hand(rows: int, shards: int, spare: int, weight: float, expected: int) -> None:
    assert nominal_size(rows, shards=shards, spare=spare, spare_weight=weight) == expected


@pytest.mark.parametrize("method", METHODS)
def test_parts_depend_on_seed_and_method_and_on_no_global_generator(method: Any) -> None:
    layout: dict[str, Any] = {"shards": 4, "method": method}
    np.random.seed(1)
    torch.manual_seed(1)
    first = shard(LABELS, 2, seed=1, **layout)
    np.random.seed(2)
    torch.manual_seed(2)
    states = np.random.get_state()[1].copy(), torch.get_rng_state(), random.getstate()  # type: ignore[index]
    assert torch.equal(first, shard(LABELS, 2, seed=1, **layout))
    assert not torch.equal(first, shard(LABELS, 2, seed=2, **layout))
    assert (np.random.get_state()[1] == states[0]).all()  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert random.getstate() == states[2]


def test_parts_never_move() -> None:
    """Recorded: a new version that dealt other rows would let one person be in two edges' budgets."""
    heads = {m: shard(LABELS, 1, shards=5, spare=2, method=m, seed=7)[:6].tolist() for m in METHODS}  # type: ignore[arg-type]
    assert heads == HEADS


def test_small_alpha_skews_and_large_alpha_does_not() -> None:
    def largest_share(alpha: float) -> float:
        parts = all_shards(LABELS, shards=5, method="dirichlet", seed=3, alpha=alpha)
        counts = torch.stack([LABELS[part].bincount(minlength=10) for part in parts])
        return float((counts.amax(0) / counts.sum(0)).mean())

    assert largest_share(0.05) > 0.75
    assert largest_share(1000.0) < 0.25


def test_dirichlet_sample_has_the_right_moments_and_stands_a_tiny_alpha() -> None:
    rng = np.random.RandomState(5)
    alpha = np.array([0.5, 0.5, 1.0])
    draws = np.stack([_dirichlet_sample(alpha, rng) for _ in range(4000)])
    mean, total = alpha / 2, alpha.sum()
    assert np.allclose(draws.mean(0), mean, atol=0.02)
    assert np.allclose(draws.var(0), mean * (1 - mean) / (total + 1), atol=0.01)
    assert np.isfinite(_dirichlet_sample(np.full(50, 1e-6), rng)).all()


def test_shards_gives_each_part_few_labels() -> None:
    parts = all_shards(LABELS, shards=10, method="shards", seed=1)
    assert all(len(part) == 100 and len(set(LABELS[part].tolist())) <= 2 for part in parts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": 5}, r"index = 5 must be in \[0, 5\)"),
        ({"index": -1}, "index = -1"),
        ({"shards": 0}, r"edges\.count = 0"),
        ({"spare": -1}, r"data\.spare = -1"),
        ({"spare_weight": 0.0}, r"data\.spare_weight = 0\.0"),
        ({"spare_weight": float("nan")}, r"data\.spare_weight = nan"),
        ({"alpha": 0.0}, r"data\.alpha = 0\.0"),
        ({"alpha": float("inf")}, r"data\.alpha = inf"),
        ({"method": "random"}, r"data\.partition = 'random'.*iid, dirichlet, shards"),
        ({"shards": 998}, r"edges\.count \+ data\.spare = 1001 is more than the 1000 rows"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"index": 0, "shards": 5, "method": "iid", "seed": 1, "spare": 0} | change
    if arguments["shards"] == 998:
        arguments["spare"] = 3
    with pytest.raises(ConfigError, match=message):
        shard(LABELS, arguments.pop("index"), **arguments)


def test_nominal_size_refuses_an_empty_part() -> None:
    with pytest.raises(ConfigError, match=r"edges\.count = 9 leaves less than one of 8 rows"):
        nominal_size(8, shards=9, spare=0, spare_weight=0.25)
