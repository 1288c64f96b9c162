"""A name means one thing, and a line stands once."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import ROOT

WORDS = tomllib.loads((ROOT / "tools" / "words.toml").read_text(encoding="utf-8"))
DOCUMENTS = {"documents", "report", "models"}  # of the REST interface, there and at the client
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
    """Return each name that a package binds, after the last part of its origin.

    The origin of a name that is defined there is empty.
    """
    bound_names = []
    for node in ast.parse(package.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            origin = (node.module or package.parent.name).rpartition(".")[2]
            bound_names += [(origin, alias.asname or alias.name) for alias in node.names]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound_names.append(("", node.name))
    return bound_names


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


def test_a_class_name_is_of_a_single_class() -> None:
    modules = defaultdict(set)
    for path in SOURCES:
        for name in _classes(path):
            modules[name].add(path.stem)
    several = {name for name, stems in modules.items() if len(stems - DOCUMENTS) + 1 > 2}
    several |= {name for name, stems in modules.items() if len(stems - DOCUMENTS) == 1 < len(stems)}
    assert several == set(WORDS["classes"])


def _classes(path: Path) -> Iterator[str]:
    """Yield the classes and type aliases that a module defines."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            targets = (target.id for target in node.targets if isinstance(target, ast.Name))
            yield from (name for name in targets if name[0].isupper() and not name.isupper())


def test_a_file_name_is_of_a_single_file() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        places[path.stem].append(path)
    several = {stem for stem, paths in places.items() if len(paths) > 1}
    assert several - {"__init__", "__main__"} == set(WORDS["files"])


def test_few_names_tell_nothing() -> None:
    folders = ("src", "services", "clients", "lab", "tests", "tools")
    names = [
        name.strip("_")
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "_pb" not in path.parts
        for name in _bound(path)
    ]
    vague = set(WORDS["vague"]["names"].split())
    many = sum(name in vague for name in names)
    assert many * WORDS["vague"]["one_in"] <= len(names), many


def _bound(path: Path) -> Iterator[str]:
    """Yield the variables and parameters of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
