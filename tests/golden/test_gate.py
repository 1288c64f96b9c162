"""The gate finds what a refactoring must not do, and nothing where nothing was done."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from golden import renew
from golden.differences import differences
from golden.gate import KEPT, KINDS, Gate, Work
from golden.trees import ROOT, Child, Failed, Tree, git, reference

PACKAGES = ("src", "services", "clients", "tests", "experiments", "lab/src")
WATCHED = ("commands", "run-file", "snapshots", "metrics")
RUN = "mapa-digits"


@dataclass(frozen=True)
class Plant:
    """A change that no refactoring may make:

    each text of `file` that is there once, and what replaces it.
    """

    file: str
    changes: tuple[tuple[str, str], ...]
    found: tuple[str, ...]  # how the lines begin that the gate says of it

    def make(self, tree: Path) -> None:
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        for old, new in self.changes:  # however its lines are broken
            tokens = re.findall(r"\w+|[^\w\s]", old)
            pattern = re.compile(r"\s*".join(map(re.escape, tokens)))
            assert len(pattern.findall(text)) == 1, (self.file, old)
            text = pattern.sub(lambda _, new=new: new, text)  # type: ignore[misc]
        path.write_text(text, encoding="utf-8")


STEP = "torch.add(self.params, update.vector, alpha=-rate, out=update.room)"
IN_DOUBLE = "(self.params.double() - self.learning_rate() * update.vector.double()).float()"
PLANTS = {
    "another rounding in one update": Plant(
        "src/tacit/algorithms/mapa.py",
        ((STEP, f"{IN_DOUBLE} if self.version == 5 else {STEP}"),),
        (f"simulated {RUN}: model:", f"in process {RUN}: model:"),
    ),
    "a renamed snapshot key": Plant(
        "src/tacit/algorithms/base/server.py",
        (('"stale": self.stale,', '"too_old": self.stale,'),),
        tuple(
            f"kept snapshots: {name}: server: values: {key}: was"
            for name in ("mapa", "vafl", "adp2sgd")
            for key in ("stale", "too_old")
        ),
    ),
    "a changed default of a run file": Plant(
        "src/tacit/config/sections.py",
        (("\n    epsilon: Positive = Field(2.0,", "\n    epsilon: Positive = Field(3.0,"),),
        (
            "kept run-file: run file: properties: privacy: default: epsilon: was 2.0, is 3.0",
            "kept run-file: run file: properties: privacy: properties: epsilon: default: was "
            "2.0, is 3.0",
        ),
    ),
    "a changed default of a command": Plant(
        "services/tacit_services/cli/privacy_budget.py",
        (
            (
                'at most 1 over the records of an edge")] = 1e-5',
                'at most 1 over the records of an edge")] = 1e-6',
            ),
        ),
        (
            "kept commands: commands: tacit plan privacy: parameters: --delta: default: was "
            "1e-05, is 1e-06",
        ),
    ),
    "a lost option": Plant(
        "services/tacit_services/cli/remote.py",
        (
            (
                'reason: Annotated[str, typer.Option(help="said to every edge, and kept in '
                'the journal")] = "operator",',
                "",
            ),
            ("client.halt(reason)", 'client.halt("operator")'),
        ),
        ("kept commands: commands: tacit halt: parameters: --reason: was",),
    ),
    "a metric's name": Plant(
        "services/tacit_services/aggregator/api/metrics.py",
        (('"tacit_model_version"', '"tacit_version"'),),
        ("kept metrics: tacit_model_version: was", "kept metrics: tacit_version: was absent"),
    ),
}


def copied(place: Path) -> Path:
    """This tree, to be changed."""
    left_out = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, place / package, ignore=left_out)
    return place


@contextmanager
def gate(newer: Path, folder: Path, older: Child | None = None) -> Iterator[Gate]:
    """This tree, or the process that has it, beside another."""
    made = Gate(older or Tree(ROOT), Tree(newer), folder)
    try:
        yield made
    finally:
        made.close()


def found(made: Gate) -> list[str]:
    return made.differences(
        Work(WATCHED, [job for job in made.jobs(quick=True) if RUN in job.name])
    )


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """This tree's process."""
    with closing(Child(Tree(ROOT), tmp_path_factory.mktemp("older"))) as made:
        yield made


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, older: Child) -> list[str]:
    """What the gate says of this tree with all that is planted."""
    tree = copied(tmp_path_factory.mktemp("planted"))
    for plant in PLANTS.values():
        plant.make(tree)
    with gate(tree, tmp_path_factory.mktemp("gate"), older) as made:
        return found(made)


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory, older: Child) -> Iterator[Gate]:
    """This tree beside itself."""
    with gate(ROOT, tmp_path_factory.mktemp("control"), older) as made:
        yield made


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_change_is_found_and_named(said: list[str], name: str) -> None:
    for beginning in PLANTS[name].found:
        assert any(line.startswith(beginning) for line in said), said


@pytest.mark.exhaustive
def test_nothing_else_is_found(said: list[str]) -> None:
    snapshots = "kept snapshots: "  # of every algorithm, of which the plant names three
    known = tuple(line for plant in PLANTS.values() for line in plant.found)
    assert not [
        line for line in said if not line.startswith((*known, snapshots, "simulated", "in process"))
    ]
    assert {line.split(": ")[-2] for line in said if line.startswith(snapshots)} == {
        "stale",
        "too_old",
    }


@pytest.mark.exhaustive
def test_without_a_change_nothing_is_found(control: Gate) -> None:
    assert found(control) == []


def test_the_runs_of_ci_have_every_algorithm(control: Gate) -> None:
    runs = control.runs
    assert sorted(
        runs.tables[name]["algorithm"]["name"] for name in runs.quick
    ) == control.newer.ask("algorithms")
    assert {path.stem for path in (ROOT / "experiments").glob("*.toml")} < runs.tables.keys()


def test_a_tree_whose_packages_are_not_its_own_is_refused(tmp_path: Path) -> None:
    for package in (
        "experiments",
        "src",
    ):  # without tacit_services: an installed tacit's would be found
        shutil.copytree(ROOT / package, tmp_path / package)
    with gate(tmp_path, tmp_path / "gate") as made, pytest.raises(Failed, match="tacit_services: "):
        made.newer.ask("algorithms")


@pytest.mark.exhaustive
def test_a_journal_of_the_older_tree_shows_a_change_of_the_newer(tmp_path: Path) -> None:
    tree = copied(tmp_path / "planted")
    PLANTS["another rounding in one update"].make(tree)
    with gate(tree, tmp_path / "gate") as made:
        lines = made.differences(Work(mqtt=[RUN, "adp2sgd-digits"]))
    assert [line.split(": was")[0] for line in lines] == [f"over MQTT {RUN}: model"]


def test_the_reference_is_a_commit_that_every_clone_has() -> None:
    git("merge-base", "--is-ancestor", reference().commit, "HEAD")
    assert sorted(path.stem for path in KEPT.iterdir()) == sorted(KINDS)


def test_only_the_last_digits_of_a_number_may_differ_and_only_where_it_is_said() -> None:
    was, close, other = (
        {"a": ["1.00000000012", 2]},
        {"a": ["1.00000000013", 2]},
        {"a": ["1.000000012", 2]},
    )
    assert list(differences(was, close, "x", exact=False)) == []
    assert list(differences(was, close, "x")) == ["x: a: 0: was 1.00000000012, is 1.00000000013"]
    assert list(differences(was, other, "x", exact=False)) == [
        "x: a: 0: was 1.00000000012, is 1.000000012"
    ]
    assert list(differences({"a": None, "b": 1}, {"b": 1, "c": 2}, "x")) == [
        "x: a: was None, is absent",
        "x: c: was absent, is 2",
    ]


def test_a_renewal_needs_a_reason_a_clean_tree_and_another_reason_for_other_bits() -> None:
    with pytest.raises(Failed, match="REASON"):
        renew.refuse_early(" ", "")
    with pytest.raises(Failed, match="not committed"):
        renew.refuse_early("a new key", " M src/tacit/protocol/wire.py\n")
    with pytest.raises(Failed, match="1 differences of bits"):
        renew.refuse_late(
            ["kept rest: was 1, is 2", "simulated mapa-digits: model: was 1, is 2"], [], ""
        )
    with pytest.raises(Failed, match="TACIT_DATA"):
        renew.refuse_late([], ["simulated vafl-mnist"], "")
    renew.refuse_late(["kept rest: was 1, is 2"], [], "")
    renew.refuse_late(["simulated mapa-digits: model: was 1, is 2"], [], "another order of sums")


def test_a_renewal_goes_on_top_of_its_part_of_the_changelog() -> None:
    log = "# Changelog\n\n## Unreleased\n\n### Added\n\n- a\n\n## 0.1\n\n### Golden\n\n- old\n"
    once = renew.entered(log, renew.entry("a key", ""))
    twice = renew.entered(once, renew.entry("a sum", "its order"))
    assert once == log.replace("- a\n", "- a\n\n### Golden\n\n- a key\n")
    assert twice == once.replace("- a key", "- a sum Model bits change: its order\n- a key")
    assert (
        renew.entered("## Unreleased\n\n- a\n", "- b")
        == "## Unreleased\n\n- a\n\n### Golden\n\n- b\n"
    )
