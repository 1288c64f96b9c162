"""Every folder of examples/ by one command: it learns, within its ε, and is remembered."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit import config
from tacit.models import Constant
from tests.conftest import ROOT
from tests.helpers.processes import PATIENCE, environment

MADE = shutil.ignore_patterns("*.csv", "train", "public", "*.safetensors", "__pycache__")
EXAMPLES = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())


def test_all_of_them_are_there() -> None:
    named = {"own-table", "own-images", "own-model", "by-person", "fine-tune", "hugging-face"}
    assert named <= set(EXAMPLES)


def trained(file: Path, out: Path, variables: dict[str, str]) -> tuple[dict[str, Any], str]:
    """The summary of `tacit run`, and what it printed."""
    command = [sys.executable, "-m", "tacit_services.cli.main", "run", str(file)]
    done = subprocess.run(
        [*command, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((out / "summary.json").read_text()), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_learns_within_its_budget(name: str, tmp_path: Path) -> None:
    needs = ROOT / "examples" / name / "requirements.txt"
    for package in needs.read_text().split() if needs.exists() else ():
        pytest.importorskip(package)  # nightly installs them
    folder = tmp_path / name
    shutil.copytree(ROOT / "examples" / name, folder, ignore=MADE)
    variables = environment(XDG_DATA_HOME=str(tmp_path / "home"))
    subprocess.run([sys.executable, str(folder / "make_data.py")], check=True, env=variables)
    summary, said = trained(folder / "run.toml", tmp_path / "out", variables)
    run = config.load(folder / "run.toml")
    assert summary["applied"] == run.run.updates
    assert 0 < summary["privacy"]["epsilon"] <= run.privacy.epsilon
    assert summary["privacy"]["unit"] == run.source.unit
    constant = Constant(**summary["constant"])
    assert constant.beaten(summary["test_accuracy"], summary["test_loss"])
    if constant.accuracy is not None:
        assert summary["test_accuracy"] > constant.accuracy + 0.15
    assert "no better" not in said


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_its_readme_has_the_one_command_and_few_lines(name: str) -> None:
    text = (ROOT / "examples" / name / "README.md").read_text()
    assert f"`make example NAME={name}`" in text
    assert len(text.splitlines()) <= 14


@pytest.mark.slow
def test_a_public_start_helps_and_private_rows_help_more(tmp_path: Path) -> None:
    folder = tmp_path / "fine-tune"
    shutil.copytree(ROOT / "examples" / "fine-tune", folder, ignore=MADE)
    variables = environment(XDG_DATA_HOME=str(tmp_path / "home"))
    subprocess.run([sys.executable, str(folder / "make_data.py")], check=True, env=variables)
    run = config.load(folder / "run.toml")
    model, test = run.build_model(), run.source.test(None)
    assert test is not None
    _, start = run.define().metrics().measure(model, model.init(1), test)
    text = (folder / "run.toml").read_text()
    (folder / "scratch.toml").write_text(text.replace("weights =", "# weights ="))
    ended = [
        trained(folder / f"{name}.toml", tmp_path / name, variables | {"XDG_DATA_HOME": str(home)})
        for name, home in (("run", tmp_path / "a"), ("scratch", tmp_path / "b"))
    ]
    tuned, scratch = (summary["test_accuracy"] for summary, _ in ended)
    assert tuned > start["accuracy"] + 0.2
    assert tuned > scratch + 0.1
