"""`tacit results`: what it says of a run that has written no model yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.cli import federations

from tests.system.cli.test_main import Captured, tacit


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["events.jsonl", "metrics.jsonl"], True),
        (["events.jsonl", "model.safetensors", "summary.json"], False),
    ],
)
def test_whoever_fetches_too_early_is_told_that_the_model_is_missing(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, files: list[str], told: bool
) -> None:
    monkeypatch.setattr(federations, "fetched", lambda reach, run, out: [out / f for f in files])
    out = str(tmp_path / "out")
    assert tacit("results", "retina", "--out", out, "--federation", str(tmp_path)) == 0
    said = capsys.readouterr()
    assert said.out.split() == [f"{out}/{file}" for file in files]
    assert ("tacit runs retina --watch" in said.err) is told
