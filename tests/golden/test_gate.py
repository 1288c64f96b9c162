"""The gate shows what a refactoring must not do, and nothing where nothing was done."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tacit import config
from tacit.config.algorithm_entries import BUILT_IN
from tests.conftest import ROOT
from tests.golden.same_bits import RULES, Failed, compare, git, python, reference, shortened

PLANTS = tomllib.loads((ROOT / "tests/golden/planted.toml").read_text(encoding="utf-8"))
COPIED = ("src", "services", "clients", "tests", "experiments", "lab/src", "pyproject.toml")
SNAPSHOTS = ("commands", "run-file", "snapshots", "metrics")
TEST = "tests/snapshots/test_snapshots.py::test_what_users_hold_is_as_its_snapshot"
RUN, PEERS = "mapa-digits", "adp2sgd-digits"


def copied(tree: Path, *names: str) -> Path:
    """Copy files and folders of this tree to `tree`."""
    for name in names:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tree / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tree / name)
    return tree


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return this tree with all that is planted."""
    tree = copied(tmp_path_factory.mktemp("planted"), *COPIED)
    for name, plant in PLANTS.items():
        path = tree / plant["file"]
        for old, new in plant["changes"]:
            tokens = re.findall(r"\w+|[^\w\s]", old)
            parts = re.split(r"\s*".join(map(re.escape, tokens)), path.read_text(encoding="utf-8"))
            assert len(parts) == 2, (name, old)
            path.write_text(new.join(parts), encoding="utf-8")
    return tree


def changed_lines(tree: Path) -> set[str]:
    """Return the lines of snapshots that differ in `tree`, without space and commas."""
    lines = set()
    for name in SNAPSHOTS:
        file = f"tests/snapshots/{name}.json"
        texts = ((place / file).read_text(encoding="utf-8") for place in (ROOT, tree))
        was, now = (Counter(line.strip(" ,") for line in text.splitlines()) for text in texts)
        lines |= {f"-{line}" for line in was - now} | {f"+{line}" for line in now - was}
    return lines


@pytest.mark.exhaustive
def test_the_snapshots_show_every_planted_change_and_nothing_else(planted: Path) -> None:
    tests = [f"{TEST}[{name}]" for name in SNAPSHOTS]
    with pytest.raises(Failed):
        python(planted, "-m", "pytest", f"{TEST}[metrics]")
    assert changed_lines(planted) == set()
    python(planted, "-m", "pytest", "--write", *tests)
    assert changed_lines(planted) == {line for plant in PLANTS.values() for line in plant["lines"]}


@pytest.mark.exhaustive
def test_a_planted_rounding_is_other_bits_of_its_runs_alone(planted: Path, tmp_path: Path) -> None:
    """Also in the journal of the older tree, which the newer one replays."""
    lines = compare(ROOT, planted, tmp_path, [RUN, PEERS], [RUN])
    places = {tuple(line.split(": ")[:2]) for line in lines}
    assert {(RUN, "model"), (RUN, "in process"), (f"over MQTT {RUN}", "model")} <= places
    assert places <= {(f"over MQTT {RUN}", "model"), *((RUN, fact) for _, fact in places)}


@pytest.mark.exhaustive
def test_without_a_change_nothing_differs(tmp_path: Path) -> None:
    assert compare(ROOT, ROOT, tmp_path, [RUN], RULES["mqtt"]) == []


def test_the_runs_of_ci_have_every_algorithm() -> None:
    texts = shortened(ROOT)
    names = [config.parse(texts[name], name).algorithm.name for name in RULES["quick"]]
    # ask and ebm are of own tables, and the reference has no least squares
    assert sorted([*names, "ask", "least-squares", "ebm"]) == sorted(BUILT_IN)
    assert {path.stem for path in (ROOT / "experiments").glob("*.toml")} < texts.keys()


def test_a_tree_whose_packages_are_not_its_own_is_refused(tmp_path: Path) -> None:
    tree = copied(tmp_path, "src", "tests")  # without tacit_services, an installed one is found
    with pytest.raises(Failed, match="tacit_services: "):
        python(tree, "-m", "tests.golden.bits", tmp_path)


def test_the_reference_is_a_commit_that_every_clone_has() -> None:
    git("merge-base", "--is-ancestor", reference(), "HEAD")


def test_a_renewal_needs_a_reason_and_a_clean_tree(tmp_path: Path) -> None:
    def ends_well(*command: str) -> bool:
        return not subprocess.run(
            command, cwd=tmp_path, check=False, capture_output=True
        ).returncode

    renewed = "make", "-f", str(ROOT / "Makefile"), "golden-renew"
    file = tmp_path / "tests/golden/REFERENCE"
    file.parent.mkdir(parents=True)
    file.write_text("0940a50 the first\n")
    for command in ("init", "config user.name a", "config user.email a@example.org", "add ."):
        assert ends_well("git", *command.split())
    assert not ends_well(*renewed, "REASON=another order of sums")  # of what is not committed
    assert ends_well("git", "commit", "-m", "first")
    assert not ends_well(*renewed, "REASON=")
    assert ends_well(*renewed, "REASON=another 'order' of sums")
    assert file.read_text().endswith(" another 'order' of sums\n")
    assert ends_well("git", "diff", "--exit-code", "HEAD")
