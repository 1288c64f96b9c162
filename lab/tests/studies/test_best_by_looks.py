"""The best model by noisy looks is about as good as the one that public rows would choose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tacit_lab.studies.best_by_looks import CASES, EPSILON, OUT, WITHIN, lost, measure

SEEDS = 20
OFTEN = 18


def kept(case: str) -> list[dict[str, Any]]:
    """Return the measurements of a case."""
    rows = json.loads(OUT.read_text(encoding="utf-8"))
    return [row for row in rows if row["case"] == case]


@pytest.mark.parametrize("case", CASES)
def test_the_model_that_looks_choose_is_as_good_as_the_public_choice(case: str) -> None:
    rows = kept(case)
    assert [row["seed"] for row in rows] == list(range(1, SEEDS + 1))
    assert all(row["epsilon"] <= EPSILON for row in rows)
    assert sum(lost(row) <= WITHIN for row in rows) >= OFTEN


@pytest.mark.parametrize("case", CASES)
def test_the_choice_matters(case: str) -> None:
    assert sum(lost(row, "last") <= WITHIN for row in kept(case)) < OFTEN - 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
def test_a_seed_of_looks_that_is_measured_again_is_as_it_is_kept(
    case: str, data_root: Path | None
) -> None:
    if data_root is None:
        pytest.skip("no data: TACIT_DATA")
    again = measure(CASES[case].run(1), data_root)
    was = kept(case)[0]
    assert again["by_looks"] == was["by_looks"]
    assert again["epsilon"] == pytest.approx(was["epsilon"], abs=1e-3)
    for now, before in zip(again["looks"], was["looks"], strict=True):
        assert now["version"] == before["version"]
        assert now["public"] == pytest.approx(before["public"], abs=5e-3)
