"""Figure files for tests."""

from __future__ import annotations

from pathlib import Path

from tacit_lab.papers.figures import figure_file

HEAD = """
[figure]
paper = "P"
name = "Fig. 1"
title = "t"
setting = "s"
scaled = "d"
x = "x"
label = "y"
"""


def written(folder: Path, text: str) -> figure_file.Figure:
    """Write a file `f.toml` with this text, and return its figure."""
    (folder / "f.toml").write_text(text)
    return figure_file.read(folder / "f.toml")
