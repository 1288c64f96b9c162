"""A name means one thing, and a line stands once."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCES = sorted(
    path
    for folder in ("src/tacit", "services", "clients/python", "lab/src")
    for path in (ROOT / folder).rglob("*.py")
    if "_pb" not in path.parts
)


def test_no_name_of_a_package_hides_a_module_of_it() -> None:
    hidden = [
        f"{package.parent.relative_to(ROOT)}: {name}"
        for package in SOURCES
        if package.name == "__init__.py"
        for origin, name in _names(package)
        if _is_module(package.parent / name) and origin != package.parent.name
    ]
    assert hidden == []


def _names(package: Path) -> list[tuple[str, str]]:
    """What it binds: the last part of where it comes from (its own, if it makes it), and the name."""
    found = []
    for node in ast.parse(package.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            origin = (node.module or package.parent.name).rpartition(".")[2]
            found += [(origin, one.asname or one.name) for one in node.names]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(("", node.name))
    return found


def _is_module(path: Path) -> bool:
    return path.with_suffix(".py").exists() or path.is_dir()


@pytest.mark.parametrize("folder", ["src/tacit", "services", "clients/python", "lab/src"])
def test_no_statement_stands_twice_in_a_row(folder: str) -> None:
    twice = [
        f"{path.relative_to(ROOT)}:{later.lineno}"
        for path in SOURCES
        if path.is_relative_to(ROOT / folder)
        for body in _bodies(path)
        for before, later in pairwise(body)
        if ast.dump(before) == ast.dump(later)
    ]
    assert twice == []


def _bodies(path: Path) -> list[list[ast.stmt]]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [
        getattr(node, "body", []) for node in nodes if not isinstance(node, ast.Lambda | ast.IfExp)
    ]
