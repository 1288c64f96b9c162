"""A model card says which answers a model's columns and bounds come of, and at which ε."""

from __future__ import annotations

import json
from pathlib import Path

from tacit import config, exported
from tests.unit.exported.test_exported import results, written

LEARNT = {"answers": "5e" * 32, "questions": 6, "edges": 2, "epsilon": 0.2, "delta": 1e-5}


def card_of(folder: Path, **privacy: str) -> str:
    results(folder / "out", config.load(written(folder / "run", learnt=LEARNT)))
    path = folder / "out" / "summary.json"
    summary = json.loads(path.read_text())
    summary["privacy"] |= privacy
    path.write_text(json.dumps(summary))
    exported.export(folder / "out", folder / "model")
    return (folder / "model" / "README.md").read_text(encoding="utf-8")


def test_the_card_says_what_was_learnt_before_and_that_epsilon_is_joint(tmp_path: Path) -> None:
    card = card_of(tmp_path, counts="all runs of the data")
    (line,) = [line for line in card.splitlines() if line.startswith("| learnt before |")]
    assert "the answers of 2 edges to 6 questions, at ε = 0.2 and δ = 1e-05 together" in line
    assert "the ε below counts these answers, too, where the same ledger paid for both" in line
    assert f"`{LEARNT['answers']}`" in line
    assert json.loads((tmp_path / "model" / "model.json").read_text())["run"]["data"]["learnt"]


def test_an_epsilon_of_this_run_alone_is_not_said_to_be_joint(tmp_path: Path) -> None:
    assert "the ε below counts these answers" not in card_of(tmp_path)


def test_a_run_of_no_answers_has_no_such_line(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    exported.export(tmp_path / "out", tmp_path / "model")
    assert "learnt before" not in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
