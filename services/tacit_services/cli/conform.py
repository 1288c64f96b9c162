"""`tacit conform`: whether a user's own algorithm keeps the contract of an algorithm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import ConfigError
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit.config import RunFile

app = typer.Typer(name="conform", no_args_is_help=True)
# A run that plays in seconds. --run names a file with other numbers.
_RUN = """
[run]
updates = 24

[data]
dataset = "digits"

[model]
name = "logistic"

[edges]
count = 3

[privacy]
epsilon = 8.0

[algorithm]
entry = "{entry}"
"""


@app.callback()
def conform() -> None:
    """Check that own code keeps its contract."""


@app.command(epilog="Example: tacit conform algorithm fedadam:FedAdam")
def algorithm(
    entry: Annotated[
        str, typer.Argument(metavar="ENTRY", help='the algorithm, "module:Algorithm"')
    ],
    run: Annotated[
        Path | None,
        typer.Option(
            help="a short run file on a published data set, with the algorithm's own settings "
            "[default: 24 updates on digits, with the settings' defaults]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the order of messages")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Check an own algorithm: same bits, snapshots, kills, the simulator, the door, ε, an attack.

    The module is executed. Exit code 2 where a check fails.
    """
    need("run")
    from tacit import config
    from tacit_services.cli.say import say
    from tacit_services.conformance.played_run import Rehearsal
    from tacit_services.conformance.suite import conform as checked

    if run is None:
        text = _RUN.format(entry=entry)
        parsed = _parsed(text, entry)
    else:
        parsed = config.load(run)
        if parsed.algorithm.name != entry:
            raise ConfigError(f"{run}: algorithm.entry={parsed.algorithm.name}: expected {entry}")
    results = []
    for result in checked(Rehearsal(parsed, seed)):
        results.append(result)
        if not as_json:
            say(f"{result.name:26} {'passes' if result.why is None else 'FAILS: ' + result.why}")
    if as_json:
        document = [{"check": result.name, "why": result.why} for result in results]
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    failed = [result.name for result in results if result.why is not None]
    if failed:
        raise ConfigError(f"{entry}: {len(failed)} of {len(results)} checks fail")


def _parsed(text: str, entry: str) -> RunFile:
    """Return the suite's own run of an algorithm. Raises ConfigError."""
    from tacit import config

    try:
        return config.parse(text, entry, folder=Path())
    except ConfigError as error:
        if "Field required" in str(error):
            raise ConfigError(f"{error}; give it a default, or name a run file by --run") from error
        raise
