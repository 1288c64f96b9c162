"""Prints lines that may have names of others: of files, classes, columns, runs, edges."""

from __future__ import annotations

import typer

from tacit.shown import lines


def say(text: str, *, err: bool = False) -> None:
    """Print the text, line by line; what a terminal would obey is shown as `?`."""
    typer.echo(lines(text), err=err)
