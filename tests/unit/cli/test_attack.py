"""`tacit attack` of a table's model: by a twin on public rows, and by its owner's own rows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tacit_services.attacking import report_files
from tacit_services.cli.main import main
from tacit_services.evidence import bundle
from tacit_services.journal.weights import Weights

from tacit import config
from tacit.config.fingerprint import differences
from tests.helpers.own_data import written

RUN = """
[run]
name = "clinic"
updates = 8
[data]
kind = "table"
train = "train.csv"
test = "public.csv"
target = "outcome"
rows = 100
[data.columns]
age = { low = 0, high = 100 }
smoker = { values = ["no", "yes"] }
outcome = { values = ["home", "ward"] }
[model]
name = "logistic"
[algorithm]
name = "fedasync"
learning_rate = 1.0
steps_min = 1
[privacy]
epsilon = 4.0
pushes = 20
batch = 20
clip = 0.5
[edges]
count = 2
"""
WEIGHT = 20.0  # of the age, in a model that takes the old for ward


def table(path: Path, rows: int, seed: int, *, old_go: str = "ward") -> Path:
    """Write rows whose outcome follows from the age; those above 50 go to `old_go`."""
    chance = np.random.default_rng(seed)
    age = chance.integers(0, 100, rows)
    stay = "home" if old_go == "ward" else "ward"
    columns = {
        "age": age,
        "smoker": chance.choice(["no", "yes"], rows),
        "outcome": np.where(age >= 50, old_go, stay),
    }
    return written(path, columns)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of a run on an owner's table, with its run file and rows beside them."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    (tmp_path / "run.toml").write_text(RUN, encoding="utf-8")
    table(tmp_path / "train.csv", 200, 1)
    table(tmp_path / "public.csv", 150, 2)
    run = config.load(tmp_path / "run.toml")
    model = run.build_model()
    params = torch.zeros(model.size)
    named = model.unflatten(params)
    weight, bias = (
        next(t for name, t in named.items() if name.endswith(end)) for end in ("weight", "bias")
    )
    weight[1, 0], bias[1] = WEIGHT, -WEIGHT / 2
    folder = tmp_path / "out"
    folder.mkdir()
    content = Weights(model, params).whole()
    (folder / "model.safetensors").write_bytes(content)
    promise = run.define().promise
    summary = {
        "run": "clinic",
        "run_file_sha256": run.fingerprint(),
        "model_sha256": hashlib.sha256(content).hexdigest(),
        "metrics": {"accuracy": 0.75},
        "privacy": promise.total({}).document() | {"epsilon": 4.0},
        "tacit_version": "0.3.0",
        "edges": 2,
        "applied": 8,
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    definition = {"format": 1, "folder": str(tmp_path), "run": differences(run)}
    (folder / "definition.json").write_text(json.dumps(definition), encoding="utf-8")
    return folder


def attack(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exited:
        main(["attack", *map(str, arguments)])
    code = exited.value.code
    assert isinstance(code, int)
    return code


def report_in(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / bundle.REPORT).read_bytes())
    return content


@pytest.mark.parametrize("shadows", [0, pytest.param(6, marks=pytest.mark.exhaustive)])
def test_without_own_rows_a_twin_is_attacked_with_the_public_test_set(
    results: Path, shadows: int
) -> None:
    assert attack(results, "--shadows", shadows) == 0
    report = report_in(results / bundle.ATTACK)
    assert (report["rows"], report["trained"], report["shadows"]) == ("public", "a twin", shadows)
    assert report["unit"] == "row"
    names = [each["name"] for each in report["attacks"]]
    assert names == ["loss", "calibrated loss", "likelihood ratio"][: 3 if shadows else 2]
    # Of its columns the one category was guessed, beside the bound of the run's ε.
    assert [each["column"] for each in report["attributes"]] == ["smoker"]
    assert report["epsilon"] == 4.0
    assert 0 < report["trained_epsilon"] <= 4.0
    assert report["attributes"][0]["most"] > report["attributes"][0]["others"]["high"]


def test_an_owners_report_tells_members_and_stays_in_a_folder_of_its_own(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given others of whom the model is sure of the wrong class,
    others = table(results.parent / "others.csv", 80, 3, old_go="home")
    # when the owner attacks the model with rows of the training and with these,
    assert attack(results, "--members", results.parent / "train.csv", "--others", others) == 0
    # then members are told,
    report = report_in(results / report_files.OWNERS)
    assert (report["rows"], report["trained"], report["shadows"]) == ("owner", "this model", 0)
    assert (report["members"], report["others"]) == (200, 80)
    assert report["attacks"][0]["auc"]["low"] > 0.9
    # and nothing of it is where an export looks.
    assert not (results / bundle.ATTACK).exists()
    assert (results / report_files.OWNERS).stat().st_mode & 0o077 == 0
    assert "stays here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--members", "{}/train.csv"], 2, "give both, or none"),
        (["--shadows", "1"], 2, "--shadows 1: is too few"),
        (["--public", "{}/train.csv"], 5, "training file"),
        (["--public", "{}/public.csv", "--answers", "{}/answers.json"], 2, "name one of them"),
        (["--members", "{}/train.csv", "--others", "{}/none.csv"], 3, "no such file"),
        (["--which", "best"], 2, "has last"),
    ],
)
def test_what_cannot_be_attacked_ends_in_one_line(
    results: Path, options: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [option.format(results.parent) for option in options]
    assert attack(results, *filled) == code
    assert words in capsys.readouterr().err
    assert not (results / bundle.ATTACK).exists()
