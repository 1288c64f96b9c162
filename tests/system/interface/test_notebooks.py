"""The notebooks of docs/tutorials run from top to bottom, and show what they have in git."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
QUICK = {"first-run", "vertical"}  # the others are for the night: each starts a kernel, and torch
# The kernel listens at a socket's file: a port would be open to everybody on this machine.
BY_FILE = Config({"KernelManager": {"transport": "ipc"}})
SMALL = 100_000  # bytes of a notebook with its outputs


def kinds(notebook: Any) -> list[list[str]]:
    """Return for each cell of code the kinds of what it shows, less a bar that has gone."""
    outputs_of_cells = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            outputs = [each for each in cell.outputs if each.get("data", {}).get("text/html") != ""]
            outputs_of_cells.append([kind for output in outputs for kind in _kinds_of(output)])
    return outputs_of_cells


def _kinds_of(output: Any) -> list[str]:
    return sorted(output.data) if "data" in output else [output.output_type]


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder with a short name, where kernel and client both are: so are their sockets."""
    with tempfile.TemporaryDirectory(prefix="k") as folder:
        yield Path(folder)


def case(path: Path) -> Any:
    marks = () if path.stem in QUICK else (pytest.mark.exhaustive,)
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", [case(path) for path in NOTEBOOKS])
def test_a_notebook_runs_and_shows_what_it_has_in_git(
    path: Path, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(place)
    in_git = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(place)}}

    NotebookClient(
        fresh, kernel_name="python3", timeout=300, config=BY_FILE, resources=resources
    ).execute()

    assert kinds(fresh) == kinds(in_git)


def test_all_eight_are_small_and_end_with_something_to_look_at() -> None:
    assert len(NOTEBOOKS) == 8
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        last = next(
            outputs_of_cells for outputs_of_cells in reversed(kinds(notebook)) if outputs_of_cells
        )
        assert {"image/png", "text/html", "text/plain"} & set(last), path.name
        assert any(
            {"image/png", "text/html"} & set(outputs_of_cells)
            for outputs_of_cells in kinds(notebook)
        ), path.name
        assert path.stat().st_size < SMALL, path.name
