"""The split of an edge's units: by the unit alone, so that nobody moves another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tacit import config
from tacit.datasets import Dataset
from tacit.datasets.held_out import SplitHalf, UnitSplit, divided, numbered
from tests.helpers.own_data import written

SPLIT = UnitSplit(b"k" * 32, 0.2)
UNITS = [f"unit {number}".encode() for number in range(4000)]
FILE = """
run.updates = 5
data.kind = "table"
data.train = "rows.csv"
data.target = "y"
data.rows = 100
data.rows_max = 1000
{unit}
data.columns.a = {{ low = 0, high = 1000 }}
data.columns.y = {{ values = [0, 1] }}
model.name = "logistic"
algorithm.name = "mapa"
edges.count = {edges}
"""


def test_a_share_of_the_units_is_held_out_whatever_they_are_called() -> None:
    sides = SPLIT.held(UNITS)
    assert abs(sides.mean() - 0.2) < 0.03
    assert abs(UnitSplit(b"k" * 32, 0.6).held(UNITS).mean() - 0.6) < 0.04
    assert abs(sides[UnitSplit(b"l" * 32, 0.2).held(UNITS)].mean() - 0.2) < 0.06  # another key
    assert np.array_equal(SplitHalf(SPLIT, True).mask(UNITS), sides)
    assert np.array_equal(SplitHalf(SPLIT, False).mask(UNITS), ~sides)


def test_taking_a_unit_away_moves_no_other() -> None:
    sides = SPLIT.held(UNITS)
    for missing in (0, 17, len(UNITS) - 1):
        others = [*UNITS[:missing], *UNITS[missing + 1 :]]
        assert np.array_equal(SPLIT.held(others), np.delete(sides, missing))
    assert np.array_equal(SPLIT.held(UNITS[::-1]), sides[::-1])


def test_the_mutant_that_holds_out_by_rank_moves_others() -> None:
    def by_rank(units: list[bytes]) -> np.ndarray:
        order = np.argsort([SPLIT.digest() + unit.decode() for unit in units])
        sides = np.zeros(len(units), np.bool_)
        sides[order[: len(units) // 5]] = True
        return sides

    sides = by_rank(UNITS)
    assert any(
        not np.array_equal(
            by_rank([*UNITS[:missing], *UNITS[missing + 1 :]]), np.delete(sides, missing)
        )
        for missing in range(50)
    )


def test_like_rows_have_a_side_each() -> None:
    ids = [b"like"] * 1000
    sides = SPLIT.held(numbered(ids, range(1000)))
    assert 120 < sides.sum() < 280
    fewer = SPLIT.held(numbered(ids[:-1], range(999)))
    assert np.array_equal(fewer, sides[:-1])


def test_published_rows_are_divided_by_what_they_hold() -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(500, 4, generator=generator), torch.arange(500) % 2
    rows = Dataset(x, y, 2, "rows")
    trained, sides = divided(rows, SPLIT)
    assert len(trained) + len(sides) == 500
    assert 60 < len(sides) < 140
    fewer, _ = divided(rows.take(torch.arange(1, 500)), SPLIT)
    rows_trained = {row.numpy().tobytes() for row in trained.x}
    assert {row.numpy().tobytes() for row in fewer.x} <= rows_trained


@pytest.mark.parametrize("unit", ["", 'data.unit = "id"\ndata.unit_rows = 3'])
@pytest.mark.parametrize("edges", [1, 2])
def test_an_own_file_is_read_in_two_halves_that_share_no_unit(
    tmp_path: Path, unit: str, edges: int
) -> None:
    ids = np.arange(600) // 3
    columns = {"id": ids, "a": np.arange(600) % 400, "y": np.arange(600) % 2}
    written(tmp_path / "rows.csv", columns)
    run = config.parse(FILE.format(unit=unit, edges=edges), "test", folder=tmp_path)
    source = run.define().source
    every, trained, sides = [], [], []
    for number in range(edges):
        undivided = source.edge(number, None, tmp_path / "keep-undivided")
        part = source.edge(number, None, tmp_path / f"keep-{number}", SPLIT)
        assert part.held_out is not None
        rows, judged = part.rows.for_edge(2), part.held_out.for_edge(2)
        every += undivided.rows.for_edge(2).x[:-1].flatten().tolist()
        trained += rows.x[:-1].flatten().tolist()
        sides += judged.x[:-1].flatten().tolist()
        assert rows.records + judged.records == undivided.rows.for_edge(2).records
    assert sorted(trained + sides) == sorted(every)
    assert 60 < len(sides) < 190
    again = source.edge(0, None, tmp_path / "keep-0")  # without a split, all rows again
    assert len(again.rows.for_edge(2).y) > len(trained) / edges


def test_an_edge_may_hold_nothing_out(tmp_path: Path) -> None:
    written(tmp_path / "rows.csv", {"a": np.arange(3), "y": np.arange(3) % 2})
    run = config.parse(FILE.format(unit="", edges=1), "test", folder=tmp_path)
    part = run.define().source.edge(0, None, tmp_path / "keep", UnitSplit(b"k" * 32, 1e-9))
    assert part.held_out is not None
    assert part.held_out.for_edge(2).records == 0
    assert part.rows.for_edge(2).records == 3


def test_what_a_row_is_known_by_follows_from_what_is_read_unless_units_have_ids(
    tmp_path: Path,
) -> None:
    """A row that is encoded otherwise may be on another side: the ledger must see that."""
    columns = {"id": np.arange(9), "a": np.arange(9), "y": np.array([0, 1, 0] * 3)}
    written(tmp_path / "rows.csv", columns)
    other_bounds = FILE.replace("high = 1000", "high = 500")

    def view(file: str, unit: str) -> str:
        text = file.format(unit=unit, edges=1)
        return config.parse(text, "test", folder=tmp_path).define().source.row_view

    assert view(FILE, "") == view(FILE, "") != view(other_bounds, "")
    unit = 'data.unit = "id"\ndata.unit_rows = 1'
    assert view(FILE, unit) == view(other_bounds, unit) == ""
