"""The laboratory's package goes with tacit's: one version, one lock, the commands that tacit knows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from tacit_services import laboratory

from tests.conftest import ROOT


def project(file: Path) -> dict[str, Any]:
    """Return the [project] table of a pyproject.toml."""
    table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    return table


LAB, TACIT = project(ROOT / "lab" / "pyproject.toml"), project(ROOT / "pyproject.toml")


def test_it_is_of_the_version_of_tacit_and_wants_that_one() -> None:
    assert LAB["name"] == laboratory.PACKAGE
    assert LAB["version"] == TACIT["version"]
    assert f"tacit[run]=={TACIT['version']}" in LAB["dependencies"]


def test_what_it_needs_besides_is_in_the_lock_of_the_tree() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)==", lock, re.M))
    names = {re.split(r"[\[><=]", requirement)[0] for requirement in LAB["dependencies"]}
    assert names - {"tacit"} <= locked


def test_its_entry_points_are_the_commands_that_tacit_knows() -> None:
    assert set(LAB["entry-points"][laboratory.GROUP]) == set(laboratory.NAMES)
