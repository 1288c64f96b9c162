"""`model.control_flow`: whether code that follows a row's numbers is run, and where that is said."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tacit import config
from tacit.config import RunFile, preflight
from tacit.errors import ConfigError
from tests.helpers import own_modules
from tests.helpers.run_files import MAPA, toml

OWN = {"name": "python", "entry": "own_modules:Ponder"}
DATA = {
    "kind": "arrays",
    "train": "rows.npz",
    "shape": [own_modules.WIDTH],
    "low": 0.0,
    "high": 1.0,
}


def run_of(folder: Path, **model: object) -> RunFile:
    shutil.copy(own_modules.__file__, folder / "own_modules.py")
    data = DATA | {"dataset": None, "classes": 2, "rows": 100}
    run = {"name": "own", "updates": 10}
    text = toml(MAPA, run=run, data=data, model=OWN | model, edges={"count": 2})
    return config.parse(text, "test", folder=folder)


def test_code_that_follows_numbers_is_refused_unless_it_is_trusted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='model.control_flow="trusted"'):  # noqa: RUF043
        run_of(tmp_path).build_model()
    assert run_of(tmp_path, control_flow="trusted").build_model().trusted


def test_it_is_part_of_the_run_only_where_it_is_trusted(tmp_path: Path) -> None:
    plain = run_of(tmp_path)
    assert "control_flow" not in plain.stated()["model"]
    assert (
        plain.define().fingerprint == run_of(tmp_path, control_flow="refused").define().fingerprint
    )
    trusted = run_of(tmp_path, control_flow="trusted")
    assert trusted.stated()["model"]["control_flow"] == "trusted"
    assert trusted.define().fingerprint != plain.define().fingerprint


def test_the_privacy_sheet_and_the_check_say_that_times_may_tell(tmp_path: Path) -> None:
    run = run_of(tmp_path, control_flow="trusted").define()
    stated = run.promise.total({}).document()
    assert "sees when pushes come" in stated["trusted"]
    assert any("times of pushes may tell" in warning for warning in preflight.warnings(run, 100))
    plain = run_of(tmp_path).define()
    assert plain.promise.total({}).document()["trusted"] == "nobody but the edge itself"
    assert not any("times of pushes" in warning for warning in preflight.warnings(plain, 100))
    nothing = replace(run.promise, private=False).total({}).document()
    assert nothing["guarantee"] == "none"


def test_tacits_own_networks_do_not_read_it() -> None:
    with pytest.raises(ConfigError, match="only python has it"):
        config.parse(
            toml(MAPA, run={"updates": 10}, model={"control_flow": "trusted"}, edges={"count": 2}),
            "test",
        )
