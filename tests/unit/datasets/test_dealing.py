"""Rows that are alike are dealt evenly, each by a function of itself and its number alone."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest

from tacit.datasets.own.dealing import LikeRows, edges_of
from tacit.datasets.own.rows import UnitIds, hashed

EDGES = 5


def dealt(rows: list[str], block: int = 1000, seed: int = 1) -> list[tuple[str, int]]:
    """Return each row, with its edge."""
    like = LikeRows()
    edges: list[int] = []
    for first in range(0, len(rows), block):
        units = ids(rows[first : first + block])
        edges += edges_of(units, seed=seed, edges=EDGES, copies=like.before(units)).tolist()
    return list(zip(rows, edges, strict=True))


def ids(rows: list[str]) -> UnitIds:
    return hashed(row.encode() for row in rows)


def survey(people: int) -> list[str]:
    """Return the answers of `people` who can answer in 32 ways."""
    chance = random.Random(5)
    return [f"answer {min(chance.randrange(32), chance.randrange(32))}" for _ in range(people)]


def test_few_different_rows_go_to_all_edges_alike() -> None:
    counts = Counter(edge for _, edge in dealt(survey(2200)))
    deviation = math.sqrt(2200 / EDGES * (1 - 1 / EDGES))
    assert sorted(counts) == list(range(EDGES))
    assert all(abs(count - 440) < 5 * deviation for count in counts.values())


def test_one_row_more_moves_no_other() -> None:
    rows = survey(500)
    before = Counter(dealt(rows))
    for place in (0, 250, 500):
        for new in ("answer 3", "an answer that nobody gave"):
            after = Counter(dealt([*rows[:place], new, *rows[place:]], block=7))
            assert (after - before).total() == 1
            assert not before - after


def test_a_row_like_no_other_has_the_edge_that_it_had_before() -> None:
    rows = [f"row {number}" for number in range(1000)]
    assert [edge for _, edge in dealt(rows)] == edges_of(ids(rows), seed=1, edges=EDGES).tolist()


@pytest.mark.parametrize("block", [1, 3, 64, 5000])
def test_copies_are_counted_over_blocks(block: int) -> None:
    rows = survey(3000)
    like = LikeRows()
    seen = Counter[str]()
    for first in range(0, len(rows), block):
        part = rows[first : first + block]
        copies = like.before(ids(part))
        for row, copy in zip(part, copies.tolist(), strict=True):
            assert copy == seen[row]
            seen[row] += 1
    assert not len(like.before(ids([])))
    assert np.asarray(like.before(ids(["new"]))).tolist() == [0]
