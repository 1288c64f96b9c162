"""Sketches: the share of two files is estimated as stated, and alike rows are not taken for same."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest

from tacit.datasets.own.rows import hashed
from tacit.known_data import sketch
from tacit.known_data.sketch import Marks, Sketches, merged, shared_rows, shared_units, sketched

KEY = b"k" * 32


def of_ids(ids: Iterable[object], key: bytes = KEY) -> Sketches:
    """Return the sketch of a file in which these people have one row each, all different."""
    units = hashed(f"person {person}".encode() for person in ids)
    return sketched([Marks(hashed(map(bytes, units)), units)], key)


def of_rows(rows: Iterable[object], key: bytes = KEY) -> Sketches:
    return sketched([Marks(hashed(str(row).encode() for row in rows), None)], key)


def survey(count: int, seed: int, kinds: int, tail: float = 0.0) -> Sketches:
    """Return a survey's answers: most of a few kinds, a share `tail` of very many."""
    chance = np.random.default_rng(seed)
    common = chance.zipf(1.5, count) % kinds
    rare = chance.integers(10**12, size=count)
    return of_rows(np.where(chance.random(count) < tail, rare, common).tolist())


@pytest.mark.parametrize("size", [50, 4_000, 60_000])
@pytest.mark.parametrize(("share", "same"), [(0.0, False), (0.01, False), (0.1, True), (1.0, True)])
def test_people_in_common_are_counted_as_the_docstring_says(
    size: int, share: float, same: bool
) -> None:
    moved = size - round(share * size)
    before, after = of_ids(range(size)), of_ids(range(moved, moved + size))
    overlap = shared_units(before, after)
    assert overlap.same == same
    error = 5 * np.sqrt(share * (1 - share) / min(size, sketch.KEPT))
    exact = round(share * size) / size
    assert abs(overlap.share - exact) <= (error if size > sketch.KEPT else 1e-9)


def test_a_file_that_has_grown_two_hundredfold_is_known_by_its_people_and_not_by_rows() -> None:
    small, large = of_ids(range(500)), of_ids(range(100_000))
    assert shared_units(small, large).same
    assert not shared_rows(small, large).same  # some 20 of 4,096: as the docstring says
    assert shared_rows(of_ids(range(5_000)), large).same


@pytest.mark.parametrize("size", [40, 300, 20_000])
def test_a_file_is_known_by_its_rows_whatever_their_order_and_number(size: int) -> None:
    rows = list(range(size))
    for other in (rows[::-1], [*rows, -1], rows[1:], rows[: size * 95 // 100]):
        assert shared_rows(of_rows(rows), of_rows(other)).same
    assert of_rows(rows).rows.tells


@pytest.mark.parametrize(("kinds", "tail"), list(itertools.product([4, 32, 3_000], [0.0, 0.05])))
def test_honest_samples_of_alike_rows_are_never_taken_for_each_other(
    kinds: int, tail: float
) -> None:
    for seed in range(40):
        sizes = np.random.default_rng(seed).integers(20, 5_000, size=2)
        left_survey, right_survey = (
            survey(int(size), seed=2 * seed + at, kinds=kinds, tail=tail)
            for at, size in enumerate(sizes)
        )
        assert not shared_rows(left_survey, right_survey).same


@pytest.mark.parametrize("times", [1, 2, 4])
def test_samples_that_were_merged_stay_honest(times: int) -> None:
    for seed in range(10):
        sketch_so_far = survey(2_000, 100 * seed, kinds=3_000, tail=0.3)
        for more in range(1, times):
            sketch_so_far = merged(
                sketch_so_far, survey(2_000, 100 * seed + more, kinds=3_000, tail=0.3)
            )
        assert sketch_so_far.rows.times == times
        assert not shared_rows(
            sketch_so_far, survey(2_000, 100 * seed + 50, kinds=3_000, tail=0.3)
        ).same


def test_twins_within_a_file_do_not_hide_a_copy_of_many_rows() -> None:
    rows = [*range(2_000), *range(100)]  # a hundred by mistake twice
    assert shared_rows(of_rows(rows), of_rows([*rows, -1])).same


def test_files_without_repeats_are_taken_for_the_same_rows_rather_than_for_others() -> None:
    drawn, redrawn = (
        np.unique(np.random.default_rng(seed).integers(0, 200, size=150)) for seed in range(2)
    )
    # Independent as drawn.
    assert shared_rows(of_rows(drawn.tolist()), of_rows(redrawn.tolist())).same


def test_rows_that_tell_nothing_say_so() -> None:
    assert not of_rows(range(36)).rows.tells
    assert of_rows(range(37)).rows.tells
    assert not survey(2_000, 1, kinds=32).rows.tells


def test_growing_month_by_month_is_one_file() -> None:
    sketch_so_far = of_rows(range(1_000))
    for month in range(1, 13):
        sketch_so_far = merged(sketch_so_far, of_rows(range(1_000 + 50 * month)))
    assert sketch_so_far.rows.times == 1
    assert shared_rows(sketch_so_far, of_rows(range(500, 2_000))).same


def test_a_merged_sketch_is_that_of_all_together() -> None:
    together = of_rows(range(20_000)).rows
    sketch_rows = merged(of_rows(range(12_000)), of_rows(range(9_000, 20_000))).rows
    assert sketch_rows.hashes.tolist() == together.hashes.tolist()


def test_counts_are_exact_however_a_file_comes_in_blocks() -> None:
    rows = [number % 6_000 for number in range(9_000)]
    marks = hashed(str(row).encode() for row in rows)
    unsplit = sketched([Marks(marks, None)], KEY).rows
    parts = sketched((Marks(marks[at : at + 700], None) for at in range(0, 9_000, 700)), KEY).rows
    assert unsplit.hashes.tolist() == parts.hashes.tolist()
    assert unsplit.twins.tolist() == parts.twins.tolist()
    assert abs(unsplit.twins.mean() - 0.5) < 5 * np.sqrt(0.25 / sketch.KEPT)


def test_nobody_is_found_without_the_key() -> None:
    assert not shared_units(of_ids(range(1_000)), of_ids(range(1_000), key=b"o" * 32)).same


def test_what_is_kept_is_read_back() -> None:
    rows = of_rows([1, 2, 2, *range(3, 300)]).rows
    again = sketch.unpacked(sketch.packed(rows))
    assert again.hashes.tolist() == rows.hashes.tolist()
    assert again.twins.tolist() == rows.twins.tolist()
    with pytest.raises(ValueError, match="ascending"):
        sketch.unpacked(sketch.packed(rows) | {"hashes": rows.hashes[::-1].tobytes().hex()})
