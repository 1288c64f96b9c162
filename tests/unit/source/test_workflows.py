"""What GitHub runs is what the Makefile has, with no more rights than a step needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))


def steps(file: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of all jobs."""
    for job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values():
        yield from job.get("steps", [])


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.stem)
def test_every_make_target_of_a_workflow_exists(file: Any) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    matrix = re.findall(r"part: \[(.*)\]", file.read_text(encoding="utf-8"))
    runs = [re.sub(r"\${{.*?}}", "X", step["run"]) for step in steps(file) if "run" in step]
    runs = [run for run in runs if run != "make X"]  # of the matrix
    targets = re.findall(
        r"^\s*make (?:--\S+ )*(?:[A-Z]+=\S.*? )?([a-z][\w-]*)", "\n".join(runs), re.M
    )
    targets += [part.split()[0] for parts in matrix for part in parts.split(", ")]
    assert targets
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.M)] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_the_tree_and_a_job_what_it_states(file: Any) -> None:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
        writes = {right for right, how in job.get("permissions", {}).items() if how == "write"}
        assert not writes or name in ("pypi", "images", "deploy"), name


def test_no_workflow_has_a_secret_but_the_run_s_own_token() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    assert len(WORKFLOWS) >= 4
    assert set(re.findall(r"secrets\.(\w+)", texts)) <= {"GITHUB_TOKEN"}


def test_dependabot_looks_at_folders_that_exist() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))[
        "updates"
    ]
    assert len(updates) >= 4
    assert [
        each["directory"] for each in updates if not (ROOT / each["directory"][1:]).is_dir()
    ] == []


def test_the_edge_s_tests_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    places = re.findall(r"^EDGE_TESTS := (.*)$", makefile, re.M)[0].split()
    assert [place for place in places if not (ROOT / place).exists()] == []
