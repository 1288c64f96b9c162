"""The commands of who runs something in a federation: submit, runs, stop, results, begin."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import ConfigError, ServiceError, TacitError
from tacit_services.cli import remote
from tacit_services.cli.data_folder import DataFolder, data_folder
from tacit_services.cli.options import AsJson
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_client import FederationClient, FederationRun

    from tacit_services.federation.access import Access

FederationFolder = Annotated[
    Path | None,
    typer.Option(
        "--federation", metavar="FOLDER", envvar="TACIT_FEDERATION", help="at its host: its folder"
    ),
]
HostUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", envvar="TACIT_URL", help="from elsewhere: https://HOST:PORT"),
]
PersonToken = Annotated[
    Path | None,
    typer.Option(envvar="TACIT_TOKEN_FILE", help="from elsewhere: file with your token"),
]
Ca = Annotated[
    str | None,
    typer.Option(
        metavar="sha256:…", envvar="TACIT_CA", help="the host's, where the token does not have it"
    ),
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="the run's name", show_default=False)]
_TICK = 1.0  # seconds between two looks of --watch


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
    federation: FederationFolder = None,
    url: HostUrl = None,
    token_file: PersonToken = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Submit a run: its members see it, consent or decline, and train."""
    need("aggregator")
    from tacit_services.federation.submitting import submitted

    with reached(federation, url, token_file, ca) as (access, client):
        run = submitted(access, client, run_file, name, data_folder(data), keep=keep)
    _show([run.to_json()], as_json, [run])


def runs(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="this run alone")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="until it is over")] = False,
    federation: FederationFolder = None,
    url: HostUrl = None,
    token_file: PersonToken = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Show the runs of a federation, and how each stands."""
    need("edge")
    with reached(federation, url, token_file, ca) as (_, client):
        listed = _chosen(client, run)
        _show([each.to_json() for each in listed], as_json, listed)
        while watch and any(not each.over for each in listed):
            before = listed
            time.sleep(_TICK)
            listed = _chosen(client, run)
            if listed != before:
                _show([each.to_json() for each in listed], as_json, listed)


def stop(
    run: RunName,
    reason: Annotated[str, typer.Option(help="its members are told")] = "stopped by its researcher",
    federation: FederationFolder = None,
    url: HostUrl = None,
    token_file: PersonToken = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """End a run; what it has trained is its result."""
    need("edge")
    with reached(federation, url, token_file, ca) as (_, client):
        stopped = client.stop(run, reason)
    _show([stopped.to_json()], as_json, [stopped])


def results(
    run: RunName,
    out: Annotated[Path, typer.Option(help="folder for the files", show_default=False)],
    federation: FederationFolder = None,
    url: HostUrl = None,
    token_file: PersonToken = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a run's results: model, summary, ledgers, picture."""
    need("edge")
    with reached(federation, url, token_file, ca) as (_, client):
        files = client.results(run, out)
    if not files:
        raise ServiceError(f"run {run}: has no results yet")
    if as_json:
        typer.echo(json.dumps([str(path) for path in files], indent=2))
    else:
        typer.echo("\n".join(map(str, files)))


def begin(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="the run's name, in a federation")
    ] = None,
    federation: FederationFolder = None,
    url: HostUrl = None,
    token_file: PersonToken = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Begin a run with those who are there, and wait for no more."""
    if run is None:  # of an aggregator without a federation
        remote.begin(url or remote.DEFAULT_URL, token_file, as_json)
        return
    need("edge")
    with reached(federation, url, token_file, ca) as (_, client):
        begun = client.begin(run)
    _show([begun.to_json()], as_json, [begun])


@contextmanager
def reached(
    federation: Path | None, url: str | None, token_file: Path | None, ca: str | None
) -> Iterator[tuple[Access, FederationClient]]:
    """Yield the way to a host and a client, whose errors become tacit's."""
    from tacit_client import ApiError, Unreachable

    access = _access(federation, url, token_file, ca)
    try:
        with access.client() as client:
            yield access, client
    except Unreachable as error:
        raise ServiceError(f"{error}; does `tacit serve` run there?") from error
    except ApiError as error:
        raise TacitError(f"{access.url}: {error}") from error


def _access(
    federation: Path | None, url: str | None, token_file: Path | None, ca: str | None
) -> Access:
    from tacit_services.federation import access
    from tacit_services.transport.proxy import Proxies

    if federation is not None:
        return access.of_folder(federation)
    if url is None or token_file is None:
        raise ConfigError(
            "--federation: missing; a folder at its host, or --url and --token-file from elsewhere"
        )
    return access.of_url(url, token_file, ca, Proxies.of_environment(os.environ))


def _chosen(client: FederationClient, run: str | None) -> list[FederationRun]:
    listed = client.runs()
    if run is None:
        return listed
    chosen = [each for each in listed if each.name == run]
    if not chosen:
        raise ConfigError(f"run {run!r}: there is none of this name")
    return chosen


def _show(content: list[dict[str, Any]], as_json: bool, listed: list[FederationRun]) -> None:
    if as_json:
        typer.echo(json.dumps(content, indent=2))
        return
    from tacit_services.display import text_tables

    if not listed:
        typer.echo("no runs; `tacit submit RUN.toml` makes one")
    else:
        console = text_tables.console()
        console.print(text_tables.runs(console, listed))
