"""`tacit check`: looks at a run before it costs anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tacit_services.cli.data_folder import Data, data_folder
from tacit_services.cli.owners import owners_screen
from tacit_services.extras import need


@owners_screen()
def check(
    file: Annotated[Path, typer.Argument(help="run file (TOML)", show_default=False)],
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Check data, model, budget, memory and time of a run; nothing is spent."""
    need("run")
    from tacit import config
    from tacit_services.project.check import check as checked
    from tacit_services.settings import data_home

    report = checked(config.load(file), data_folder(data), data_home())
    if as_json:
        typer.echo(json.dumps({"facts": dict(report.facts), "warnings": report.warnings}, indent=2))
        return
    for what, found in report.facts:
        typer.echo(f"{what:<18} {found}")
    for warning in report.warnings:
        typer.echo(f"note: {warning}")
    typer.echo(f"next: tacit run {file}")
