"""A first run without a public row is nearly as good as one that was given bounds: Credit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tacit_lab.studies.first_run import CREDIT, OUT, SITES, credit, measure

SEEDS = (1, 2, 3, 4, 5)
BEHIND = 0.02  # of the AUC, at the most
IN_ALL = 4.0  # ε of questions, training and looks, jointly


def kept() -> dict[int, dict[str, Any]]:
    """Return the measurements by seed."""
    return {row["seed"]: row for row in json.loads(OUT.read_text(encoding="utf-8"))}


def test_every_seed_is_kept() -> None:
    assert tuple(kept()) == SEEDS


@pytest.mark.parametrize("seed", SEEDS)
def test_a_first_run_without_a_public_row_is_close_to_one_with_public_bounds(seed: int) -> None:
    row = kept()[seed]
    first, given = row["first"], row["given"]
    assert first["auc"] >= given["auc"] - BEHIND
    assert first["epsilon"] <= IN_ALL
    assert 3.8 < given["epsilon"] <= IN_ALL  # it has spent on training what both may spend
    assert len(row["rows"]) == SITES


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_look_tells_what_the_test_rows_do(seed: int) -> None:
    first = kept()[seed]["first"]
    figure = first["look"]["metrics"]["auc"]
    assert first["look"]["edges"] == SITES
    # The interval is of the rows that were held out; those that are tested are others.
    assert figure["low"] - 0.03 <= first["auc"] <= figure["high"] + 0.03


@pytest.mark.exhaustive
def test_a_seed_that_is_measured_again_is_as_it_is_kept(
    data_root: Path | None, tmp_path: Path
) -> None:
    if data_root is None or not (data_root / CREDIT).is_file():
        pytest.skip("no data: TACIT_DATA")
    again, was = measure(credit(data_root), 1, tmp_path), kept()[1]
    assert again["rows"] == was["rows"]
    for run in ("first", "given"):
        assert again[run]["epsilon"] == pytest.approx(was[run]["epsilon"], abs=1e-3)
        assert again[run]["columns"] == was[run]["columns"]
        assert again[run]["auc"] == pytest.approx(was[run]["auc"], abs=2e-3)
