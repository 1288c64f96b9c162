"""Every folder of examples/ by one command: it learns, within its ε, and is remembered."""

from __future__ import annotations

import json
import math
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
QUICK = ("own-images", "own-table")
FINE_TUNE = "fine-tune"  # which has a test of its own
EXAMPLES = sorted(file.parent.name for file in (ROOT / "examples").glob("*/run.toml"))


def test_all_of_them_are_there() -> None:
    expected = {"own-table", "own-images", "own-model", "by-person", FINE_TUNE, "hugging-face"}
    expected |= {"lora", "own-text"}
    assert expected <= set(EXAMPLES)


def trained(file: Path, out: Path, variables: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Return the summary of `tacit run`, and what it printed."""
    command = [sys.executable, "-m", "tacit_services.cli.main", "run", str(file)]
    completed = subprocess.run(
        [*command, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,  # minutes on a machine that has other work, too
        check=False,
        env=variables,
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads((out / "summary.json").read_text()), completed.stdout


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
@pytest.mark.parametrize("name", [*QUICK, *nightly(*sorted({*EXAMPLES} - {FINE_TUNE, *QUICK}))])
def test_an_example_learns_within_its_budget(name: str, tmp_path: Path) -> None:
    folder, variables = made(name, tmp_path)
    learnt(folder, tmp_path / "out", variables)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_its_readme_has_the_one_command_and_few_lines(name: str) -> None:
    text = (ROOT / "examples" / name / "README.md").read_text()
    assert f"`make example NAME={name}`" in text
    assert len(text.splitlines()) <= 14


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
