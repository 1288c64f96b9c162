"""`tacit check`: looks at a run before it costs anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import PrivacyError
from tacit_services.cli.data_folder import DataFolder, data_folder
from tacit_services.cli.owners import owners_screen
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_services.project.preview import CheckReport


@owners_screen()
def check(
    file: Annotated[Path, typer.Argument(help="run file (TOML)", show_default=False)],
    data: DataFolder = None,
    identity: Annotated[
        int | None,
        typer.Option(
            min=0,
            envvar="TACIT_IDENTITY",
            help="at a site: look at this edge's file alone, as its machine has no other's",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Check data, model, budget, memory and time of a run; nothing is spent."""
    need("run")
    from tacit import config
    from tacit_services.display.progress import SlowSteps
    from tacit_services.project.preview import check as checked
    from tacit_services.settings import data_home

    slow = SlowSteps()
    with slow.step(f"reading {file}, and counting rows where it does not say how many"):
        run = config.load(file)
    report = checked(run, data_folder(data), data_home(), slow, identity)
    if as_json:
        typer.echo(json.dumps({"facts": dict(report.facts), "warnings": report.warnings}, indent=2))
    else:
        _show(report, file, identity)
    if report.refused is not None:
        raise PrivacyError(f"tacit run will not start: {report.refused}")


def _show(report: CheckReport, file: Path, identity: int | None) -> None:
    for what, text in report.facts:
        say(f"{what:<18} {text}")
    for warning in report.warnings:
        say(f"note: {warning}")
    if report.refused is None and identity is not None:
        say(f"next: TACIT_RUN_FILE={file} TACIT_IDENTITY={identity} tacit edge")
    elif report.refused is None:
        say(f"next: tacit run {file}")
