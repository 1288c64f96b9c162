"""A bin or a column of an additive model is set by hand, and everything in its folder says so."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tacit_services.cli.main import main

from tacit import exported
from tacit.errors import ConfigError
from tacit.exported.flattening import FlatValue
from tests.unit.exported.test_column_functions import bins, model_of
from tests.unit.exported.test_exported import new_rows


def flattened(folder: Path, *arguments: str) -> Path:
    out = folder / "model-2"
    with pytest.raises(SystemExit, match="0"):
        main(["flatten", str(folder / "model"), *arguments, "--out", str(out)])
    return out


def test_a_column_adds_nothing_any_more(tmp_path: Path) -> None:
    before = model_of(tmp_path)
    out = flattened(tmp_path, "age")
    after = exported.read(out)
    table = new_rows(tmp_path / "new.csv")
    for old, new in zip(
        *(exported.predict(each, "table", table, explain=True) for each in (before, after)),
        strict=True,
    ):
        assert old.reasons is not None
        assert new.reasons is not None
        assert new.reasons == {**old.reasons, "age": 0.0}
        assert new.probabilities != old.probabilities


def test_its_files_are_of_the_new_values(tmp_path: Path) -> None:
    model_of(tmp_path)
    out = flattened(tmp_path, "age", "0:7", "50")
    facts = json.loads((out / "model.json").read_text())
    assert facts["flattened"] == [{"column": "age", "bins": [0, 1, 2, 16], "to": "zero"}]
    card = (out / "README.md").read_text()
    assert "## Changed by hand" in card
    assert "age: 0 to 3.125, 3.125 to 6.25, 6.25 to 9.375, 50 to 53.125: set to 0" in card
    for name in ("model.safetensors", "bins.csv", "functions.svg"):
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() in card
    added = [float(line["log odds of ward"]) for line in bins(tmp_path, "model-2")]
    assert [number for number, value in enumerate(added) if value == 0] == [0, 1, 2, 16]
    assert (
        facts["trained_sha256"]
        == json.loads((tmp_path / "model" / "model.json").read_text())["trained_sha256"]
    )  # of the run's results, as before


def test_a_bin_takes_the_mean_of_the_neighbours_that_stay(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    out = flattened(tmp_path, "age", "50:56", "100", "--to", "neighbours")
    old = model.params.view(2, -1)
    new = load_file(out / "model.safetensors")["bins.weight"]
    assert torch.allclose(new[:, 16], (old[:, 15] + old[:, 18]) / 2)
    assert torch.equal(new[:, 16], new[:, 17])
    assert torch.equal(new[:, 31], old[:, 30])
    assert torch.equal(new[:, :16], old[:, :16])


def test_a_second_change_keeps_the_first(tmp_path: Path) -> None:
    model_of(tmp_path)
    first = flattened(tmp_path, "sex", "other", "none")
    exported.flatten(first, "age", [], tmp_path / "model-3")
    card = (tmp_path / "model-3" / "README.md").read_text()
    assert "- sex: other, none: set to 0\n- age: all bins: set to 0" in card
    assert card.count("## What drives it") == card.count("## Changed by hand") == 1
    assert len(exported.read(tmp_path / "model-3").facts["flattened"]) == 2


@pytest.mark.parametrize(
    ("column", "named", "to", "complaint"),
    [
        ("height", [], "zero", "is no column"),
        ("sex", ["x"], "zero", "is in no bin"),
        ("age", ["120"], "zero", "is in no bin"),
        ("age", ["old"], "zero", "expected a number"),
        ("sex", ["f"], "neighbours", "no neighbours"),
        ("age", [], "neighbours", "no neighbours"),
    ],
)
def test_what_is_no_bin_is_refused(
    tmp_path: Path, column: str, named: list[str], to: FlatValue, complaint: str
) -> None:
    model_of(tmp_path)
    with pytest.raises(ConfigError, match=complaint):
        exported.flatten(tmp_path / "model", column, named, tmp_path / "model-2", to)
    assert not (tmp_path / "model-2").exists()
