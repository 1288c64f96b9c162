"""Prints lines that may have names of others: of files, classes, columns, runs, edges."""

from __future__ import annotations

import sys

import typer

from tacit.shown import lines


def say(text: str, *, err: bool = False) -> None:
    """Print the text, line by line; what a terminal would obey is shown as `?`."""
    typer.echo(lines(text), err=err)


def print_line(line: str) -> None:
    """Print a line whole, however long, at once: somebody copies it, or waits for it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
