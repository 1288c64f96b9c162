"""Every folder of examples/ by one command: it learns, within its ε, and is remembered."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit import config
from tacit.models import Constant
from tests.conftest import ROOT
from tests.helpers.nightly import nightly
from tests.helpers.processes import PATIENCE, environment

MADE = shutil.ignore_patterns(
    "*.csv", "*.npz", "*.json", "train", "public", "*.safetensors", "__pycache__"
)
QUICK = ("own-table",)
FINE_TUNE = "fine-tune"  # which has a test of its own, as have these:
ASK, NO_PUBLIC_DATA, CREDIT, COLUMNS = "ask", "no-public-data", "credit", "bank-and-shop"
OF_ITS_OWN = {FINE_TUNE, ASK, NO_PUBLIC_DATA, CREDIT, COLUMNS}
EXAMPLES = sorted(file.parent.name for file in (ROOT / "examples").glob("*/run.toml"))


def test_all_of_them_are_there() -> None:
    expected = {"own-table", "own-images", "own-model", "by-person", "hugging-face", "lora"}
    expected |= {"own-text"} | OF_ITS_OWN
    assert expected <= set(EXAMPLES)


def printed(command: list[str], variables: dict[str, str]) -> str:
    """Return what a command prints that ends well."""
    completed = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,  # minutes on a machine that has other work, too
        check=False,
        env=variables,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def trained(
    file: Path, out: Path, variables: dict[str, str], *options: str
) -> tuple[dict[str, Any], str]:
    """Return the summary of `tacit run`, and what it printed."""
    command = [sys.executable, "-m", "tacit_services.cli.main", "run", str(file), *options]
    output = printed([*command, "--out", str(out)], variables)
    return json.loads((out / "summary.json").read_text()), output


def made(name: str, place: Path) -> tuple[Path, dict[str, str]]:
    """Return the example with its data, and an environment whose ledgers are new.

    Skip the test without the example's packages.
    """
    needs = ROOT / "examples" / name / "requirements.txt"
    for package in needs.read_text().split() if needs.exists() else ():
        pytest.importorskip(package)  # `make example-packages` installs them
    folder = place / name
    shutil.copytree(ROOT / "examples" / name, folder, ignore=MADE)
    variables = environment(XDG_DATA_HOME=str(place / "home"))
    subprocess.run([sys.executable, str(folder / "make_data.py")], check=True, env=variables)
    return folder, variables


def learnt(folder: Path, out: Path, variables: dict[str, str]) -> float:
    """Return the accuracy (nan of a number) that `run.toml` reaches, within its budget."""
    summary, output = trained(folder / "run.toml", out, variables)
    run = config.load(folder / "run.toml")
    assert summary["applied"] == run.run.updates
    assert 0 < summary["privacy"]["epsilon"] <= run.privacy.epsilon
    assert summary["privacy"]["unit"] == run.source.unit
    constant = Constant(**summary["constant"])
    assert constant.beaten(summary["test_accuracy"], summary["test_loss"])
    assert "no better" not in output
    if constant.accuracy is None:
        return math.nan
    assert summary["test_accuracy"] > constant.accuracy + 0.15
    return float(summary["test_accuracy"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *nightly(*sorted({*EXAMPLES} - {*OF_ITS_OWN, *QUICK}))])
def test_an_example_learns_within_its_budget(name: str, tmp_path: Path) -> None:
    folder, variables = made(name, tmp_path)
    learnt(folder, tmp_path / "out", variables)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_its_readme_has_the_one_command_and_few_lines(name: str) -> None:
    text = (ROOT / "examples" / name / "README.md").read_text()
    assert f"`make example NAME={name}`" in text
    assert len(text.splitlines()) <= 14


@pytest.mark.slow
def test_questions_are_answered_by_every_ward(tmp_path: Path) -> None:
    folder, variables = made(ASK, tmp_path)
    out = tmp_path / "out"
    _, output = trained(folder / "run.toml", out, variables)
    answers = json.loads((out / "answers.json").read_text())
    assert {(each["edges"], each["of"], each["epsilon"]) for each in answers} == {(5, 5, 0.5)}
    rows = sum(text.read_text().count("\n") - 1 for text in folder.glob("ward*.csv"))
    assert abs(answers[0]["value"] - rows) < 500
    assert all(each["question"] in output for each in answers)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_bank_and_a_shop_rank_their_people_and_pay_once_for_two_runs(tmp_path: Path) -> None:
    folder, variables = made(COLUMNS, tmp_path)
    first, _ = trained(folder / "run.toml", tmp_path / "first", variables)
    second, output = trained(folder / "run.toml", tmp_path / "second", variables)
    assert first["privacy"]["epsilon"] == pytest.approx(8.0, rel=1e-4)
    assert second["privacy"]["epsilon"] == first["privacy"]["epsilon"]
    assert first["privacy"]["unit"] == "person"
    assert min(first["metrics"]["auc"], second["metrics"]["auc"]) > 0.8
    assert "0 releases are left" in output


@pytest.mark.slow
def test_a_csv_becomes_a_picture_of_what_drives_the_score(tmp_path: Path) -> None:
    folder, variables = made(CREDIT, tmp_path)
    out = tmp_path / "out"
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    printed(["sh", str(folder / "steps.sh"), str(out)], variables)
    summary = json.loads((out / "run" / "summary.json").read_text())
    assert 0.9 < summary["privacy"]["epsilon"] <= 1.0
    assert summary["test_accuracy"] > summary["constant"]["accuracy"] + 0.1
    functions = json.loads((out / "model" / "model.json").read_text())["functions"]
    importance = {term["columns"][0]: term["importance"] for term in functions["terms"]}
    assert max(importance, key=importance.__getitem__) in ("late", "used")
    assert all(place["deviation"] > 0 for term in functions["terms"] for place in term["bins"])
    assert 'class="band f0"' in (out / "model" / "functions.svg").read_text()
    card = (out / "model" / "README.md").read_text()
    assert "| column | moves a row by, on average | noise alone would by |" in card
    assert (out / "reasons.csv").read_text().startswith("row,prediction,p(pays),p(defaults),by age")
    assert len((folder / "README.md").read_text().splitlines()) <= 10


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_model_learns_where_no_row_is_public(tmp_path: Path) -> None:
    folder, variables = made(NO_PUBLIC_DATA, tmp_path)
    out = tmp_path / "out"
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    output = printed(["sh", str(folder / "steps.sh"), str(out)], variables)
    summary = json.loads((out / "run" / "summary.json").read_text())
    assert 3.2 < summary["privacy"]["epsilon"] < 3.4  # jointly with the questions' 0.2
    assert "test" not in config.load(out / "clinic" / "run.toml").data.model_fields_set
    right, most = map(float, re.findall(r"([0-9.]+)%", output)[-2:])
    assert right > most + 20


@pytest.mark.exhaustive
def test_a_public_start_helps_and_private_rows_help_more(tmp_path: Path) -> None:
    folder, variables = made(FINE_TUNE, tmp_path)
    run = config.load(folder / "run.toml")
    model, test = run.build_model(), run.source.test(None)
    assert test is not None
    _, start = run.define().metrics().measure(model, model.init(1), test)
    tuned = learnt(folder, tmp_path / "out", variables)
    text = (folder / "run.toml").read_text()
    (folder / "scratch.toml").write_text(text.replace("weights =", "# weights ="))
    fresh = variables | {"XDG_DATA_HOME": str(tmp_path / "other")}
    scratch, _ = trained(folder / "scratch.toml", tmp_path / "scratch", fresh)
    assert tuned > start["accuracy"] + 0.2
    assert tuned > scratch["test_accuracy"] + 0.1
