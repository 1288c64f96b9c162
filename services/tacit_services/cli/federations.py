"""The commands of who runs something in a federation: submit, runs, stop, results, begin."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import ConfigError, ServiceError
from tacit_services.cli.data_folder import DataFolder, data_folder
from tacit_services.cli.options import AsJson
from tacit_services.cli.reach import Reach, answered, reaching
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_client import FederationClient, FederationRun

RunName = Annotated[str, typer.Argument(metavar="RUN", help="the run's name", show_default=False)]
_TICK = 1.0  # seconds between two looks of --watch
_LONGEST = 30.0  # the same while the host does not answer


@reaching
def submit(
    run_file: Annotated[
        str,
        typer.Argument(
            metavar="RUN.toml",
            help="run file without data.train; of several, ':' between, the first whose published "
            "data is there",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="the run's name [its run.name, or the file's]")
    ] = None,
    data: DataFolder = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="do nothing where there is a run of this name")
    ] = False,
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """Submit a run: its members see it, consent or decline, and train."""
    need("aggregator")
    from tacit_services.federation.submitting import submitted

    access = reach.access()
    with answered(access.url), access.client() as client:
        run = submitted(access, client, run_file, name, data_folder(data), keep=keep)
    show([run], as_json)


@reaching
def runs(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="this run alone")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="until it is over")] = False,
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """Show the runs of a federation, and how each stands."""
    need("edge")
    show_runs(reach, run, watch, as_json)


@reaching
def stop(
    run: RunName,
    reason: Annotated[str, typer.Option(help="its members are told")] = "stopped by its researcher",
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """End a run; what it has trained is its result."""
    need("edge")
    show_stopped(reach, run, reason, as_json)


@reaching
def results(
    run: RunName,
    out: Annotated[Path, typer.Option(help="folder for the files", show_default=False)],
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """Fetch a run's results: model, summary, ledgers, picture."""
    need("edge")
    files = fetched(reach, run, out)
    if as_json:
        typer.echo(json.dumps([str(path) for path in files], indent=2))
    else:
        typer.echo("\n".join(map(str, files)))
    if not any(path.name == "summary.json" for path in files):  # it is written at the end
        say(
            f"run {run} has written no model yet, as it does at its end; to wait for that: "
            f"tacit runs {run} --watch",
            err=True,
        )


def show_runs(reach: Reach, run: str | None, watch: bool, as_json: bool) -> None:
    """Show how the runs stand, or one of them; with `watch` until all are over."""
    if watch:
        for listed in _watched(reach, run):
            show(listed, as_json)
        return
    with reach.client() as client:
        show(_chosen(client, run), as_json)


def show_stopped(reach: Reach, run: str, reason: str, as_json: bool) -> None:
    """End a run, and show how it stands then."""
    with reach.client() as client:
        stopped = client.stop(run, reason)
    show([stopped], as_json)


def fetched(reach: Reach, run: str, out: Path) -> list[Path]:
    """Fetch a run's results into `out`; returns their paths. Raises TacitError."""
    with reach.client() as client:
        files = client.results(run, out)
    if not files:
        raise ServiceError(f"run {run}: has no results yet")
    return files


def _watched(reach: Reach, run: str | None) -> Iterator[list[FederationRun]]:
    """Yield how the runs stand, at every change, until all are over.

    A host that does not answer, as while it is started again, is waited for.
    """
    pause = threading.Event()
    before: list[FederationRun] | None = None
    wait = _TICK
    while True:
        try:
            with reach.client() as client:
                while True:
                    listed = _chosen(client, run)
                    if wait > _TICK:
                        say("the host answers again", err=True)
                        wait = _TICK
                    if listed != before:
                        yield listed
                    before = listed
                    if all(each.over for each in listed):
                        return
                    pause.wait(_TICK)
        except ServiceError as error:
            if before is None:  # nothing was ever there: no restart, but a wrong address
                raise
            if wait == _TICK:
                say(f"{error}; trying again", err=True)
            wait = min(2 * wait, _LONGEST)
            pause.wait(wait)


def _chosen(client: FederationClient, run: str | None) -> list[FederationRun]:
    listed = client.runs()
    if run is None:
        return listed
    chosen = [each for each in listed if each.name == run]
    if not chosen:
        raise ConfigError(f"run {run!r}: there is none of this name")
    return chosen


def show(listed: list[FederationRun], as_json: bool) -> None:
    """Print how runs stand."""
    if as_json:
        content: list[dict[str, Any]] = [run.to_json() for run in listed]
        typer.echo(json.dumps(content, indent=2))
        return
    from tacit_services.display import text_tables

    if not listed:
        typer.echo("no runs; `tacit submit RUN.toml` makes one")
    else:
        console = text_tables.console()
        console.print(text_tables.runs(console, listed))
