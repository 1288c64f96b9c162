"""A model card says which noisy figure a model has, which one chose it, and what judging has cost."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tacit import config, exported
from tacit.errors import DataError
from tests.unit.exported.test_exported import results, written

SIDES = {"training": 1.5, "held_out": 0.25}


def look(number: int, value: float | None) -> dict[str, Any]:
    """Return a look as summary.json has it; value: None where the noise hides it."""
    figure = {"value": value, "low": (value or 0) - 0.03, "high": (value or 0) + 0.03}
    return {
        "look": number,
        "looks": 3,
        "version": 3 * number,
        "edges": 2,
        "of": 3,
        "suppressed": value is None,
        "metrics": {} if value is None else {"accuracy": figure},
        "beyond_constant": {"value": 0.2, "low": 0.1, "high": 0.3},
        "epsilon": 0.3,
        "held_out": 0.2,
        "best": number == 2,
    }


def judged_run(folder: Path, *values: float | None, sides: dict[str, Any] | None = None) -> Path:
    """Write the results of a run with such looks, of which the second one is the best."""
    results(folder / "out", config.load(written(folder / "run")))
    path = folder / "out" / "summary.json"
    summary = json.loads(path.read_text())
    summary["looks"] = [look(number, value) for number, value in enumerate(values, 1)]
    content = (folder / "out" / "model.safetensors").read_bytes()
    (folder / "out" / "best.safetensors").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    best = {"file": "best.safetensors", "model_sha256": digest, "version": 6, "look": 2}
    summary["models"] = {"best": best}
    if sides is not None:
        summary["privacy"]["sides"] = sides
    path.write_text(json.dumps(summary))
    return folder


def card_of(folder: Path, which: str = "last") -> str:
    exported.export(folder / "out", folder / which, which=which)
    return (folder / which / "README.md").read_text(encoding="utf-8")


def test_the_last_model_has_the_figures_of_the_last_look(tmp_path: Path) -> None:
    card = card_of(judged_run(tmp_path, 0.7, 0.8, 0.78, sides=SIDES))
    assert "| judged at the edges | accuracy 0.78 (0.75 to 0.81); 95 % intervals" in card
    assert "look 3 of 3, 2 of 3 edges; better than always the same answer by 0.2 (0.1 to" in card
    assert "| chosen by |" not in card


def test_the_best_model_says_by_which_figure_and_at_which_epsilon_it_was_chosen(
    tmp_path: Path,
) -> None:
    card = card_of(judged_run(tmp_path, 0.7, 0.8, 0.78, sides=SIDES), "best")
    assert "| judged at the edges | accuracy 0.8 (0.77 to 0.83)" in card
    assert "| chosen by | accuracy 0.8 (0.77 to 0.83) at look 2, of looks that cost ε 0.3" in card


def test_the_cost_of_judging_is_one_side_and_not_added(tmp_path: Path) -> None:
    card = card_of(judged_run(tmp_path, 0.7, 0.8, 0.78, sides=SIDES))
    (line,) = [line for line in card.splitlines() if line.startswith("| ε of judging |")]
    assert "0.25, of about 20 % of each edge's units" in line
    assert "The others have spent 1.5." in line
    assert "the larger of the two, not their sum" in line


def test_where_both_sides_are_counted_together_the_card_does_not_part_them(tmp_path: Path) -> None:
    card = card_of(judged_run(tmp_path, 0.7, 0.8, 0.78))
    assert "| ε of judging | at most 0.3 by this run" in card
    assert "not their sum" not in card


def test_hidden_figures_are_said_to_be_hidden(tmp_path: Path) -> None:
    card = card_of(judged_run(tmp_path, 0.7, 0.8, None))
    assert "| judged at the edges | look 3 of 3, 2 of 3 edges: the noise hides all figures" in card
    assert "accuracy 0 " not in card


def test_a_model_that_no_look_was_at_is_not_said_to_be_judged(tmp_path: Path) -> None:
    judged_run(tmp_path, 0.7, 0.8)  # the run went on after its last look
    assert "| judged at the edges | this model was not judged at the edges |" in card_of(tmp_path)


def test_a_run_without_looks_says_nothing_of_judging(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    card = card_of(tmp_path)
    assert "judged" not in card
    assert "judging" not in card


def test_looks_of_a_stranger_are_read_strictly(tmp_path: Path) -> None:
    judged_run(tmp_path, 0.7, 0.8, 0.78)
    path = tmp_path / "out" / "summary.json"
    summary = json.loads(path.read_text())
    summary["looks"][0]["metrics"]["accuracy"]["low"] = "<b>"
    path.write_text(json.dumps(summary))
    with pytest.raises(DataError, match=r"summary.json: is damaged: looks.0.metrics.accuracy.low"):
        card_of(tmp_path)
