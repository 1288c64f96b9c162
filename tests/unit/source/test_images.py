"""The images are defined for two kinds of processors; no test builds those for arm64."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.helpers.servers import PATIENCE

IMAGES = {"edge": "tacit-edge", "aggregator": "tacit-aggregator", "tools": "tacit"}
PLATFORMS = ["linux/amd64", "linux/arm64"]


@pytest.fixture(scope="module")
def targets() -> dict[str, dict[str, Any]]:
    """Return what docker would build, as it says itself."""
    if shutil.which("docker") is None and not os.environ.get("CI"):
        pytest.skip("docker is not installed")
    completed = subprocess.run(
        ["docker", "buildx", "bake", "--file", "docker/bake.hcl", "--print"],
        cwd=ROOT,
        env={**os.environ, "REGISTRY": "registry.example/", "TAG": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    targets: dict[str, dict[str, Any]] = json.loads(completed.stdout)["target"]
    return targets


def test_all_three_images_are_defined_for_both_kinds_of_processors(
    targets: dict[str, dict[str, Any]],
) -> None:
    assert set(targets) == set(IMAGES)
    for name, image in IMAGES.items():
        assert targets[name]["platforms"] == PLATFORMS
        assert targets[name]["tags"] == [f"registry.example/{image}:1"]


def test_what_they_are_made_from_is_there(targets: dict[str, dict[str, Any]]) -> None:
    for name, target in targets.items():
        text = (ROOT / target["context"] / target["dockerfile"]).read_text()
        stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
        assert target["target"] == name
        assert name in stages
        assert set(target["args"]) <= set(re.findall(r"^ARG (\w+)", text, re.MULTILINE))


def test_nothing_in_the_images_is_of_one_processor_alone() -> None:
    for path in (ROOT / "docker/Dockerfile", ROOT / "docker/install-torch"):
        assert not re.search(r"x86_64|x86-64-v|amd64|--platform", _commands(path)), path


def _commands(path: Path) -> str:
    return "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
