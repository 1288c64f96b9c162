"""The commands of `tacit-lab`, which nothing here imports.

It names them in its entry points of the group `tacit.commands`: `figures` is `tacit figures`, and
`plan.measure` is `tacit plan measure`. Each is a `LaboratoryCommand`. No other distribution is
asked, so that none becomes part of an edge by being installed beside it. Without `tacit-lab` its
commands exit with status 2, and with one line that names it. No library is imported here, as in
`extras`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

PACKAGE = "tacit-lab"
GROUP = "tacit.commands"
NAMES = ("figures", "demo", "plan.dp-pasgd", "plan.measure")
ADVICE = f"this command is the laboratory's: pip install {PACKAGE}"


@dataclass(frozen=True, slots=True)
class LaboratoryCommand:
    """A command: a function or an app of typer, and an example of it."""

    run: Callable[..., object] | typer.Typer
    example: str


def commands() -> dict[str, LaboratoryCommand] | None:
    """Return the laboratory's commands by name; None where it is not installed."""
    try:
        entries = metadata.distribution(PACKAGE).entry_points
    except metadata.PackageNotFoundError:
        return None
    return {entry.name: entry.load() for entry in entries.select(group=GROUP)}
