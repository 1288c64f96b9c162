"""No child of Python is started with the current folder on its path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

ONE_PLACE = "services/tacit_services/python_child.py"
# `multiprocessing` starts Python itself, and so do the pools that are made of it.
STARTERS = {"multiprocessing", "ProcessPoolExecutor", "forkserver", "torch.multiprocessing"}
PAPERS = (
    "lab/src/tacit_lab/papers"  # benches and studies are for a checkout, and hold nobody's rows
)
PYTHON = re.compile(
    r"\bpython3?\b[^\n&|;]*?[\s\",\[](-m|-c)[\s\",]+(tacit(?!_lab)|\"import|import|venv|grpc)"
)


def unsafe(path: Path, name: str) -> Iterator[str]:
    """Yield what in a module starts Python as a child, and not as `python_child` does."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    guarded = "python_child.inherited(" in text
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and not guarded:
            module = getattr(node, "module", None)
            if starters := STARTERS & {module, *(alias.name for alias in node.names)}:
                yield f"{name}: {starters.pop()} without python_child.inherited"
        if isinstance(node, ast.List | ast.Tuple):
            words = [ast.unparse(element) for element in node.elts]
            program, option = (*words, "", "")[:2]
            python = program == "sys.executable" or (
                "python" in program and option.startswith("'-")
            )
            if python and option != "'-P'":
                yield f"{name}: {words}"


def commands(path: Path) -> Iterator[str]:
    """Yield the lines of a file that is no module which run Python's own or tacit's modules."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if PYTHON.search(line) and "-P" not in line:
            yield f"{path.relative_to(ROOT)}: {line.strip()}"


def test_no_module_starts_python_in_another_way() -> None:
    parts = ("src", "services", "clients", PAPERS)
    sources = [path for part in parts for path in (ROOT / part).rglob("*.py")]
    assert ROOT / ONE_PLACE in sources
    names = {path: str(path.relative_to(ROOT)) for path in sources}
    assert [line for path, name in names.items() for line in unsafe(path, name)] == []


def test_no_other_file_does() -> None:
    files = [ROOT / name for name in ("Makefile", "compose.yaml", "docker/Dockerfile", "README.md")]
    files += [*ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")]
    image = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
    assert "PYTHONSAFEPATH=1" in image  # of all that runs in a container
    assert [line for path in files for line in commands(path)] == []


@pytest.mark.parametrize(
    "code",
    [
        "import multiprocessing",
        "from multiprocessing import forkserver",
        "from concurrent.futures import ProcessPoolExecutor",
        "import sys; command = [sys.executable, '-m', 'tacit.kernels']",
        "command = ['python3', '-c', 'pass']",
    ],
)
def test_the_search_finds_one(tmp_path: Path, code: str) -> None:
    (tmp_path / "x.py").write_text(code)
    assert list(unsafe(tmp_path / "x.py", "x"))


@pytest.mark.parametrize(
    "line",
    [
        "\t$(BIN)/python -m tacit.kernels",
        'test: [CMD, python, -c, "import urllib.request as u"]',
        "RUN python -m venv --without-pip /venv",
    ],
)
def test_the_search_finds_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr("tests.system.source.test_safe_path.ROOT", tmp_path)
    (tmp_path / "file").write_text(line)
    assert list(commands(tmp_path / "file"))
