"""What the documents point at is there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tacit import config
from tests.conftest import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
OF_NOW = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]  # it tells of the past as well
FOLDERS = (
    "clients",
    "deploy",
    "docker",
    "docs",
    "experiments",
    "lab",
    "protos",
    "services",
    "src",
    "tests",
    "tools",
)
NOWHERE = {"utils.py", "common.py"}  # files that CONTRIBUTING does not want
TESTS = [path for tests in ("tests", "lab/tests") for path in (ROOT / tests).rglob("test_*.py")]
EXPERIMENTS = sorted(ROOT.glob("experiments/*.toml"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))
    missing = [link for link in links if not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("document", OF_NOW, ids=lambda path: path.name)
def test_every_file_of_code_that_is_named_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    paths = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)`", text)
    modules = re.findall(r"`([\w./-]+\.py)`", text)
    module_names = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    missing = [path for path in paths if not (ROOT / path).exists()]
    missing += [name for name in modules if "/" not in name and name not in module_names | NOWHERE]
    missing += [name for name in modules if "/" in name and not (ROOT / name).exists()]
    assert not missing


def test_the_architecture_is_read_in_ten_minutes() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(text.split()) < 1700


def test_follow_one_gradient_names_functions_that_exist() -> None:
    tour = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .split("## Follow one gradient")[1]
        .split("##")[0]
    )
    steps = re.findall(r"\[[^\]]+\]\(([^)]+)\)(?: `([A-Za-z.]+)\(\)`)?", tour)
    assert len(steps) >= 8
    for path, name in steps:
        source = (ROOT / path).read_text(encoding="utf-8")
        for part in name.split(".") if name else []:
            assert re.search(rf"\b(def|class) {part}\b", source), f"{path} has no {part}"


def test_every_test_named_in_the_failure_table_exists() -> None:
    table = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8").split("## Who may die")[1]
    named_tests = set(re.findall(r"`(test_\w+)`", table))
    assert named_tests
    assert not named_tests - {path.stem for path in TESTS}


@pytest.mark.parametrize(("page", "least"), [("docs/attacks.md", 25), ("CONTRIBUTING.md", 14)])
def test_every_row_of_a_numbered_table_names_tests_that_exist(page: str, least: int) -> None:
    """Of the attacks, and of where newcomers stopped."""
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", text, re.M)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= least
    for _, tests in rows:
        assert re.search(r"`test_\w+", tests) or "the same" in tests
    _check_named_tests(text)


def test_every_pitfall_has_a_severity_and_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8")
    pitfalls = page.split("\n### ")[1:]
    assert len(pitfalls) >= 20
    for pitfall in pitfalls:
        title = pitfall.partition("\n")[0]
        assert re.search(r"\*\*Severity\*\*: (critical|high|medium)", pitfall), title
        assert re.search(r"\*\*Test\*\*: `test_\w+::test_\w+`", pitfall), title
    _check_named_tests(page)


def _check_named_tests(text: str) -> None:
    """Fail where a page names a test that is not there."""
    files: dict[str, str] = {}
    for path in TESTS:
        files[path.stem] = files.get(path.stem, "") + path.read_text(encoding="utf-8")
    for file, name in re.findall(r"`(test_\w+)(?:::(test_\w+))?`", text):
        assert f"def {name}(" in files[file] if name else file in files, (file, name)


def test_the_changelog_of_the_next_release_has_a_line_for_each_change() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    lines = ("## Unreleased" + text.split("## Unreleased")[1].split("\n## ")[0]).splitlines()
    assert len(lines) <= 80
    kinds = [line for line in lines if line.startswith("### ")]
    assert kinds == [f"### {kind}" for kind in ("Breaking", "Added", "Changed", "Fixed", "Privacy")]
    assert [
        line for line in lines[lines.index(kinds[0]) :] if line and line[:2] not in ("- ", "##")
    ] == []


def test_every_exit_code_is_documented() -> None:
    from tacit import errors

    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8").split("## Exit codes")[1]
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.TacitError)}
    assert all(f"{code} " in text for code in codes)


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda path: path.name)
def test_every_experiment_is_a_valid_run_file(file: Path) -> None:
    config.load(file).build_model()


def test_every_make_target_in_the_readme_exists() -> None:
    targets = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


def test_every_page_stands_once_in_the_index_by_kind() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    kinds = dict(re.findall(r"^## (.+)\n\n((?:- .*\n|  .*\n)+)", index, re.M))
    assert list(kinds) == ["Tutorials", "How-tos", "Reference", "Explanation"]
    listed = [link for text in kinds.values() for link in re.findall(r"\]\(([\w-]+\.md)\)", text)]
    assert sorted(listed) == sorted(
        path.name
        for path in ROOT.glob("docs/*.md")
        if path.name not in ("README.md", "index.md")  # the folder's first page, and the site's
    )


def test_the_table_of_systems_says_which_file_has_no_noise() -> None:
    rows = re.findall(
        r"^\|.*`(experiments/[\w-]+\.toml)`.*\| (.+) \|$",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.M,
    )
    assert len(rows) == 5
    for file, label in rows:
        private = config.load(ROOT / file).define().promise.private
        assert label == ("private" if private else "**none: not private**"), file


@pytest.mark.parametrize(
    ("variables", "volumes"), [((), ""), (("ALL=",), ""), (("ALL=1",), "--volumes ")]
)
def test_whoever_takes_compose_down_takes_all_profiles_down(
    variables: tuple[str, ...], volumes: str
) -> None:
    completed = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "down", *variables],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout == f"docker compose --profile '*' down {volumes}--remove-orphans\n"


@pytest.mark.parametrize("answer", ["", "yes\n", "Purge\n", "down\n"])
def test_purge_names_what_is_lost_and_deletes_nothing_unless_told(
    tmp_path: Path, answer: str
) -> None:
    # Given a docker that tells if it is called,
    (tmp_path / "docker").write_text("#!/bin/sh\necho docker was called\n")
    (tmp_path / "docker").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def purged(words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "--no-print-directory", "purge"],
            cwd=ROOT,
            env=environment,
            input=words,
            capture_output=True,
            text=True,
            check=False,
        )

    refused = purged(answer)
    assert refused.returncode != 0
    assert "what each edge's rows have spent" in refused.stdout
    assert "docker was called" not in refused.stdout
    done = purged("purge\n")
    assert done.returncode == 0
    assert "docker was called" in done.stdout


def test_no_document_takes_compose_down_in_another_way() -> None:
    command = "docker compose --profile '*' down --remove-orphans"
    for path in [*OF_NOW, ROOT / "compose.yaml"]:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.search(r"docker compose .*\bdown\b", line) or command in line, path


def test_compose_makes_no_folder_outside_of_the_clone() -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    defaults = set(re.findall(r"- \$\{TACIT_DATA:-([^}]*)\}", text))
    assert defaults == {"./data"}
    assert "/data/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "`TACIT_DATA` names (by default\n`./data`" in readme


def test_compose_asks_every_service_that_stays_whether_it_is_well() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    unasked = {name for name, service in services.items() if "healthcheck" not in service}
    assert unasked == {"certificates", "submit"}  # they end at once
    for name, service in services.items():
        words = service.get("healthcheck", {}).get("test", [])
        if words[1:3] == ["tacit", "health"]:
            file = service["environment"].get("TACIT_HEALTH_FILE", "")
            assert "--url" in words or file.startswith("/tmp/"), name


def test_what_a_page_says_that_a_log_says_is_what_it_says() -> None:
    page = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
    services = ROOT / "services" / "tacit_services"
    assert "grep 'this process is'" in page
    for file, line in (
        ("identity/folder.py", "this process is %s: it holds identity %s"),
        ("member/membership.py", "this process is {}, and its state is in {}"),
    ):
        assert f'"{line}"' in (services / file).read_text(encoding="utf-8")


def test_the_forms_of_issues_are_whole() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 4
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.name == "config.yml":
            continue
        assert {"name", "description", "body"} <= set(form)
        ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert len(ids) == len(set(ids)) >= 2
        assert all(part["attributes"].get("label") for part in form["body"] if "id" in part)
