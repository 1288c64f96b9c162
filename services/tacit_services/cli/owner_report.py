"""`tacit report`: what a run was worth, on the owner's own rows and own screen."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Annotated

import typer

from tacit_services.cli.join import StateFolder
from tacit_services.cli.options import AsJson
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_services.member.report_figures import OwnReport


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="a run that this member took part in")],
    state: StateFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what a run was worth here: its model beside one of your rows alone. Nothing leaves."""
    need("edge")
    from tacit_services.member import known_states
    from tacit_services.member.own_report import own_report
    from tacit_services.settings import data_home
    from tacit_services.transport.proxy import Proxies

    member = known_states.known_state(state)
    worth = own_report(member, run, Proxies.of_environment(os.environ), data_home())
    if as_json:
        typer.echo(json.dumps(worth.document(), indent=2))
        return
    _print(worth)


def _print(worth: OwnReport) -> None:
    from rich.console import Console
    from rich.table import Table

    from tacit_services.display.text_tables import cell

    table = Table(title=f"{worth.run}, on your own rows", title_justify="left")
    table.add_column("")
    for name in ("the federation's model", "your rows alone", "always the same answer"):
        table.add_column(name, justify="right")
    for name, judged in worth.metrics.items():
        figures = (judged.federation, judged.alone, judged.constant)
        table.add_row(cell(name), *map(_number, figures))
    Console().print(table)
    for sentence in worth.words():
        say(sentence)


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.4g}"
