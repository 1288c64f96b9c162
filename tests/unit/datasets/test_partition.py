"""Parts are disjoint, cover every row once, never move, and have the sizes that were asked for."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.datasets.partition import _dirichlet_sample, all_shards, nominal_size, shard
from tacit.datasets.vertical_rows import feature_blocks, party_view
from tacit.errors import ConfigError

METHODS = ("iid", "dirichlet", "shards")
LABELS = torch.arange(1000) % 10
HEADS = {
    "iid": [17, 18, 29, 30, 36, 37],
    "dirichlet": [9, 17, 27, 37, 49, 63],
    "shards": [2, 3, 13, 22, 23, 32],
}


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
def test_parts_are_disjoint_not_empty_and_cover_every_row(
    layout: dict[str, Any], rows: int, classes: int
) -> None:
    labels = torch.arange(rows) * 7 % classes
    parts = [shard(labels, index, **layout) for index in range(layout["shards"] + layout["spare"])]
    assert sorted(torch.cat(parts).tolist()) == list(range(rows))
    assert all(len(part) > 0 and part.dtype == torch.int64 for part in parts)
    again = all_shards(labels, **layout)
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 20),
    st.integers(0, 8),
    st.sampled_from([0.1, 0.25, 0.5, 1.0]),
    st.integers(400, 2000),
)
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
def test_nominal_size_by_hand(
    rows: int, shards: int, spare: int, weight: float, expected: int
) -> None:
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
    """Compare with recorded parts.

    A new version that dealt other rows would let one person be in two edges' budgets.
    """
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
        ({"method": "random"}, r"data\.partition = 'random'.*iid, dirichlet, shards, natural"),
        ({"shards": 998}, r"edges\.count \+ data\.spare = 1001 is more than the 1000 rows"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "index": 0,
        "shards": 5,
        "method": "iid",
        "seed": 1,
        "spare": 0,
    } | change
    if arguments["shards"] == 998:
        arguments["spare"] = 3
    with pytest.raises(ConfigError, match=message):
        shard(LABELS, arguments.pop("index"), **arguments)


def test_nominal_size_refuses_an_empty_part() -> None:
    with pytest.raises(ConfigError, match=r"edges\.count = 9 leaves less than one of 8 rows"):
        nominal_size(8, shards=9, spare=0, spare_weight=0.25)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.data())
def test_natural_parts_keep_every_group_whole(groups: list[int], data: st.DataObject) -> None:
    keys = torch.tensor(groups)
    count = data.draw(st.integers(1, len(set(groups))))
    parts = all_shards(keys, shards=count, method="natural", seed=data.draw(st.integers(0, 9)))
    assert sorted(torch.cat(parts).tolist()) == list(range(len(groups)))
    owners = [{groups[row] for row in part.tolist()} for part in parts]
    assert all(owners)
    assert sum(map(len, owners)) == len(set(groups))


def test_natural_parts_by_hand() -> None:
    keys = torch.tensor([4, 7, 4, 9, 7, 4, 1])  # 4: three rows, 7: two, 9 and 1: one each
    one_each = all_shards(keys, shards=4, method="natural", seed=1)
    assert [part.tolist() for part in one_each] == [[6], [0, 2, 5], [1, 4], [3]]
    in_turn = all_shards(keys, shards=3, method="natural", seed=1)
    assert [part.tolist() for part in in_turn] == [[0, 2, 3, 5], [1, 4], [6]]  # 4 and 9, 7, 1
    assert [shard(keys, 2, shards=3, method="natural", seed=5).tolist()] == [[6]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"shards": 5},
            r"edges\.count = 5 is more than the 4 groups of data\.partition = 'natural'",
        ),
        ({"spare": 1}, r"data\.spare = 1: data\.partition = 'natural' deals whole groups"),
    ],
)
def test_natural_parts_refuse_what_would_cut_a_group(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"shards": 3, "method": "natural", "seed": 1} | change
    with pytest.raises(ConfigError, match=message):
        all_shards(torch.tensor([4, 7, 4, 9, 7, 4, 1]), **arguments)


@given(st.integers(1, 60), st.data())
def test_feature_blocks_cover_every_column_once(columns: int, data: st.DataObject) -> None:
    blocks = feature_blocks(columns, data.draw(st.integers(1, columns)))
    columns_of = [list(range(columns))[block] for block in blocks]
    assert [column for block in columns_of for column in block] == list(range(columns))
    assert {len(block) for block in columns_of} <= {
        columns // len(blocks),
        -(-columns // len(blocks)),
    }


@pytest.mark.parametrize(
    ("shape", "parties", "quadrants", "views"),
    [
        ((1, 28, 28), 7, False, {(1, 4, 28)}),
        ((3, 32, 32), 8, False, {(3, 4, 32)}),
        ((3, 32, 32), 4, True, {(3, 16, 16)}),
        ((753,), 3, False, {(251,)}),
        ((23,), 2, False, {(12,), (11,)}),
    ],
)
def test_party_views_hold_every_value_once(
    shape: tuple[int, ...], parties: int, quadrants: bool, views: set[tuple[int, ...]]
) -> None:
    x = torch.arange(2 * math.prod(shape)).view(2, *shape)
    views_of = [party_view(x, party, parties, quadrants=quadrants) for party in range(parties)]
    assert {tuple(part.shape[1:]) for part in views_of} == views
    for row in (0, 1):
        assert (
            sorted(torch.cat([part[row].flatten() for part in views_of]).tolist())
            == x[row].flatten().tolist()
        )


def test_published_columns_are_kept_where_they_fit_the_parties() -> None:
    assert feature_blocks(30, 2, (10, 20)) == [slice(0, 10), slice(10, 30)]
    assert feature_blocks(30, 3, (10, 20)) == [slice(0, 10), slice(10, 20), slice(20, 30)]
    assert party_view(torch.zeros(4, 30), 1, 2, sizes=(10, 20)).shape == (4, 20)
    with pytest.raises(ConfigError, match=r"blocks of \(10, 20\) columns do not make up 23"):
        feature_blocks(23, 2, (10, 20))


def test_quadrants_are_in_reading_order() -> None:
    x = torch.arange(16).view(1, 1, 4, 4)
    assert [party_view(x, party, 4, quadrants=True).flatten()[0].item() for party in range(4)] == [
        0,
        2,
        8,
        10,
    ]


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((5,), {"party": 2, "parties": 2}, r"party = 2 must be in \[0, 2\)"),
        ((5,), {"party": 0, "parties": 6}, r"edges.count = 6 must be in \[1, 5\]"),
        (
            (1, 4, 4),
            {"party": 0, "parties": 2, "quadrants": True},
            r"edges.count = 2 of \(1, 4, 4\)",
        ),
        (
            (1, 5, 5),
            {"party": 0, "parties": 4, "quadrants": True},
            r"edges.count = 4 of \(1, 5, 5\)",
        ),
    ],
)
def test_bad_parties_are_named(
    shape: tuple[int, ...], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        party_view(torch.zeros(2, *shape), **arguments)
