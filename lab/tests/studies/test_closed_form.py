"""The study of least squares runs as its docstring states, in its smallest form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tacit_lab.studies.closed_form import CLOSED, STEPS, main


def test_the_quick_form_writes_both_kinds_and_draws_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "picture.png"
    monkeypatch.setattr("tacit_lab.studies.closed_form.PICTURE", picture)
    out = tmp_path / "points.json"
    monkeypatch.setattr("sys.argv", ["closed_form", "--quick", "--out", str(out)])
    main()
    points = json.loads(out.read_text(encoding="utf-8"))
    assert [point["kind"] for point in points] == [CLOSED, STEPS]
    assert all(point["accuracy"][0] > 60 for point in points)
    assert not picture.exists()
