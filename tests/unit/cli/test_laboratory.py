"""The laboratory's commands: one line that says what to install where it is missing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tacit_services import laboratory

from tests.conftest import ROOT

PRODUCT = ("src", "services", "clients", "examples", "docker", "tests")
# A figure's point has defaults, too, which tests/golden/test_defaults.py guards.
GATE = ("tests/golden/",)
MISSING = """
import sys
from tacit_services import laboratory
laboratory.PACKAGE = "nowhere-to-be-found"
from tacit_services.cli import main
main.main(sys.argv[1:])
"""


def without(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `tacit ARGUMENTS` where the laboratory is not installed."""
    return subprocess.run(
        [sys.executable, "-c", MISSING, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("words", [name.replace(".", " ") for name in laboratory.NAMES])
def test_without_it_its_commands_say_in_one_line_what_to_install(words: str) -> None:
    process = without(*words.split(), "--quick", "one", "two")

    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr == "tacit: this command is the laboratory's: pip install tacit-lab\n"


def test_without_it_everything_else_is_there() -> None:
    output = without("--help", "--all").stdout
    assert "figures" in output
    assert "pip install tacit-lab" in output
    assert without("plan", "privacy", "--help").returncode == 0


def test_with_it_it_has_the_commands_that_tacit_knows_of() -> None:
    assert set(laboratory.commands() or laboratory.NAMES) == set(laboratory.NAMES)


def imported(path: Path) -> set[str]:
    """Return the top-level names that a file imports, anywhere in it."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_the_product_and_its_tests_import_nothing_of_it() -> None:
    files = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 500
    assert [
        name
        for path in files
        if not (name := str(path.relative_to(ROOT))).startswith(GATE)
        if imported(path) & {"tacit_lab", "lab"}
    ] == []
