"""Every folder of examples/ by one command: it learns, within its ε, and is remembered."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tacit import config
from tacit.models import Constant
from tests.conftest import ROOT
from tests.helpers.processes import PATIENCE, environment

EXAMPLES = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())


def test_all_of_them_are_there() -> None:
    assert {"own-table", "own-images", "own-model", "by-person"} <= set(EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_learns_within_its_budget(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(
        ROOT / "examples" / name, folder, ignore=shutil.ignore_patterns("*.csv", "train", "public")
    )
    variables = environment(XDG_DATA_HOME=str(tmp_path / "home"))
    subprocess.run([sys.executable, str(folder / "make_data.py")], check=True, env=variables)
    command = [sys.executable, "-m", "tacit_services.cli.main", "run", str(folder / "run.toml")]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    run = config.load(folder / "run.toml")
    assert summary["applied"] == run.run.updates
    assert 0 < summary["privacy"]["epsilon"] <= run.privacy.epsilon
    assert summary["privacy"]["unit"] == run.source.unit
    constant = Constant(**summary["constant"])
    assert constant.beaten(summary["test_accuracy"], summary["test_loss"])
    if constant.accuracy is not None:
        assert summary["test_accuracy"] > constant.accuracy + 0.15
    assert "no better" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_its_readme_has_the_one_command_and_few_lines(name: str) -> None:
    text = (ROOT / "examples" / name / "README.md").read_text()
    assert f"`make example NAME={name}`" in text
    assert len(text.splitlines()) <= 14
