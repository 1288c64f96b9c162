"""`tacit conform`: whether an own algorithm keeps its contract, or a broker does what is needed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import ConfigError, ServiceError
from tacit_services.extras import need

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tacit.config import RunFile
    from tacit_services.conformance.check_result import CheckResult
    from tacit_services.conformance.played_run import Rehearsal

app = typer.Typer(name="conform", no_args_is_help=True)
# A run that plays in seconds. --run names a file with other numbers.
_UPDATES = "updates = 24"
_RUN = f"""
[run]
{_UPDATES}

[data]
dataset = "digits"

{{model}}
[edges]
count = 3

[privacy]
epsilon = 8.0

[algorithm]
{{key}} = "{{entry}}"
"""
_MODEL = """\
[model]
name = "logistic"
"""


@app.callback()
def conform() -> None:
    """Check that own code, or a broker, keeps its contract."""


@app.command(epilog="Example: tacit conform algorithm fedadam:FedAdam")
def algorithm(
    entry: Annotated[
        str,
        typer.Argument(
            metavar="ENTRY", help='the algorithm, "module:Algorithm", or the name of tacit\'s own'
        ),
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
    from tacit_services.conformance.suite import conform as checked

    with tempfile.TemporaryDirectory() as place:
        results = _told(checked(_rehearsal(entry, run, seed, Path(place))), as_json=as_json)
    failed = [result.name for result in results if result.failed]
    if failed:
        raise ConfigError(f"{entry}: {len(failed)} of {len(results)} checks fail")


@app.command(epilog="Example: tacit conform broker mqtts://broker.example.org:8883 --pki pki")
def broker(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="mqtt://HOST:PORT or mqtts://HOST:PORT")
    ],
    pki: Annotated[
        Path | None,
        typer.Option(
            help="folder of `tacit pki init`, with the certificates of aggregator and edge-0; "
            "checks permissions as well"
        ),
    ] = None,
    run: Annotated[
        str, typer.Option(help="the run whose topics are used; nobody may be at work in it")
    ] = "conform",
    patience: Annotated[float, typer.Option(min=0.1, help="seconds for each answer")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Check what tacit needs of an MQTT 3.1.1 broker: sessions, wills, order, size, permissions.

    Exit code 4 where a check fails that is needed.
    """
    need("edge")
    from tacit.protocol.topics import checked_name
    from tacit_services.conformance.broker_client import BrokerPlace
    from tacit_services.conformance.broker_suite import BrokerRehearsal
    from tacit_services.conformance.broker_suite import conform as checked
    from tacit_services.conformance.check_result import NonconformanceError

    rehearsal = BrokerRehearsal(BrokerPlace.parsed(url, pki, patience), checked_name("--run", run))
    try:
        results = _told(checked(rehearsal), as_json=as_json)
    except NonconformanceError as error:
        raise ServiceError(f"{url}: {error}") from error
    failed = [result.name for result in results if result.failed]
    if failed:
        raise ServiceError(f"{url}: {len(failed)} of {len(results)} checks fail")


def _told(checks: Iterable[CheckResult], *, as_json: bool) -> list[CheckResult]:
    """Print the result of each check, as it comes or all as JSON; return all."""
    from tacit_services.cli.say import say

    results = []
    for result in checks:
        results.append(result)
        if not as_json:
            say(f"{result.name:26} {_verdict(result)}")
    if as_json:
        document = [
            {"check": result.name, "why": result.why, "needed": result.needed} for result in results
        ]
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    return results


def _verdict(result: CheckResult) -> str:
    if result.why is None:
        return "passes"
    if result.needed:
        return f"FAILS: {result.why}"
    return f"not there, not needed: {result.why}"


def _rehearsal(entry: str, run: Path | None, seed: int, place: Path) -> Rehearsal:
    """Return the run that is checked; made-up rows lie in `place`. Raises ConfigError."""
    from tacit import config
    from tacit.config.algorithm_entries import BUILT_IN, built_in, is_own
    from tacit.config.asked import ASK
    from tacit_services.conformance import made_up
    from tacit_services.conformance.played_run import Rehearsal

    if run is not None:
        parsed = config.load(run)
        if parsed.algorithm.name != entry:
            raise ConfigError(f"{run}: algorithm.entry={parsed.algorithm.name}: expected {entry}")
        return Rehearsal(parsed, seed)
    if entry == ASK:
        asks = made_up.questions(place)
        return Rehearsal(asks, seed, made_up.rows_of(asks, place))
    key = "entry" if is_own(entry) else "name"
    implied = built_in(entry).settings.implied(1, {}) if entry in BUILT_IN else {}
    model = "" if "model" in implied else _MODEL
    text = _RUN.format(key=key, entry=entry, model=model)
    parsed = _parsed(text, entry)
    edges = parsed.edges.count
    if parsed.algorithm.traits(edges).released == "once":  # a run is over when all have answered
        parsed = _parsed(text.replace(_UPDATES, f"updates = {edges}"), entry)
    return Rehearsal(parsed, seed)


def _parsed(text: str, entry: str) -> RunFile:
    """Return the suite's own run of an algorithm. Raises ConfigError."""
    from tacit import config

    try:
        return config.parse(text, entry, folder=Path())
    except ConfigError as error:
        if "Field required" in str(error):
            raise ConfigError(f"{error}; give it a default, or name a run file by --run") from error
        raise
