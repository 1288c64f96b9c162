"""The `tacit` command.

Heavy libraries are imported inside the command that needs them, so that `tacit status` is quick.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import ConfigError, ServiceError, TacitError
from tacit_services import launch
from tacit_services.cli import (
    audit,
    demo,
    design,
    figures,
    keys,
    measure,
    pki,
    predict,
    privacy_budget,
    replay,
    simulate,
)
from tacit_services.cli import ledger as ledgers
from tacit_services.cli.data_folder import Data, data_folder
from tacit_services.extras import need
from tacit_services.launch import INTERRUPTED, complain
from tacit_services.transport import rest_client

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from tacit_client import Client, Status

_CODES = (
    "Exit codes: 0 ok, 1 failure, 2 usage, run file or setting, 3 data, "
    "4 broker, store, port or REST unreachable, "
    "5 privacy (budget, ledger, policy), 6 wire, 130 interrupted."
)

app = typer.Typer(
    name="tacit",
    help="Private asynchronous federated learning over MQTT.",
    epilog=_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
privacy_budget.app.command("dp-pasgd")(design.dp_pasgd)
privacy_budget.app.command()(measure.measure)
app.add_typer(privacy_budget.app)
app.add_typer(ledgers.app)
app.add_typer(demo.app)
app.add_typer(pki.app)
app.command()(audit.audit)
app.command()(predict.predict)
app.command()(replay.replay)
app.command()(simulate.simulate)
app.command()(figures.figures)
app.command()(keys.keys)

Url = Annotated[str, typer.Option(envvar="TACIT_URL", help="the aggregator's REST address")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
TokenFile = Annotated[
    Path | None, typer.Option(envvar="TACIT_TOKEN_FILE", help="file with the operator's token")
]
DEFAULT_URL = "http://127.0.0.1:8000"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a TacitError becomes one line on stderr, and its exit code."""
    sys.exit(_exit_code(arguments))


def _exit_code(arguments: list[str] | None) -> int:
    try:
        result = app(arguments, prog_name="tacit", standalone_mode=False)
    except TacitError as error:
        return complain(str(error), error.exit_code)
    except typer.TyperException as error:
        message = error.format_message()  # empty: the help has been printed instead
        return (
            complain(f"{message} (see tacit --help)", error.exit_code)
            if message
            else error.exit_code
        )
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


# -- a whole run, and the services --


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="run file (TOML)", show_default=False)],
    edges: Annotated[
        int | None, typer.Option(min=1, help="number of edges, instead of the file's")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder of the results [default: out/<file>]")
    ] = None,
    serve: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="REST address [default: a free port]")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="seed, instead of the file's")] = None,
    data: Data = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            envvar="TACIT_POLICY", help="what the edges allow (TOML) [default: the run file]"
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(help="keep every accepted message in this new file, for tacit replay"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the run that was stopped in OUT")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run everything on this machine: broker, store, aggregator and edges, then a summary."""
    need("run")
    from tacit_services.testbed import preload

    preload.prepare()  # its imports go on while this process makes its own
    from tacit_services.testbed import local_run

    folder = out or Path("out") / file.stem
    code = local_run.run(
        file,
        edges=edges,
        out=folder,
        serve=serve,
        seed=seed,
        data=data_folder(data),
        as_json=as_json,
        policy=policy,
        journal=journal,
        resume=resume,
    )
    raise typer.Exit(code)


@app.command()
def aggregator() -> None:
    """Serve one run; settings from TACIT_* in the environment."""
    need("aggregator")
    launch.aggregator()


@app.command()
def edge() -> None:
    """Be one edge of a run; settings from TACIT_* in the environment."""
    need("edge")
    launch.edge()


@app.command()
def peer() -> None:
    """Be one peer of a run without a server; settings from TACIT_*, as an edge's."""
    need("edge")
    launch.peer()


@app.command()
def party() -> None:
    """Be one party of a vertical run; settings from TACIT_* in the environment, as an edge's."""
    need("edge")
    launch.party()


# -- against a running aggregator --


@app.command()
def status(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show the run as it stands."""
    with _client(url) as client:
        _show_status(client.status(), as_json)


@app.command()
def watch(
    url: Url = DEFAULT_URL,
    once: Annotated[bool, typer.Option("--once", help="show the present state and leave")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the run live until it ends."""
    with _client(url) as client:
        if once:
            _show_status(client.status(), as_json)
        elif not _follow(client, as_json):
            raise ServiceError(f"{url}: the aggregator stopped before the run's end")


@app.command()
def model(
    url: Url = DEFAULT_URL,
    out: Annotated[
        Path | None, typer.Option(help="download the weights (safetensors) to this file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the model, or download its weights and check their SHA-256."""
    from tacit_services.display import tables

    with _client(url) as client:
        if out is not None:
            _download(client, out, as_json)
        else:
            info = client.model()
            _show(info.to_json(), as_json, lambda console: tables.model(console, info))


@ledgers.app.callback(invoke_without_command=True)
def ledger(context: typer.Context, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show what every edge's data has paid in privacy, or read an edge's own ledger."""
    if context.invoked_subcommand is not None:
        return
    from tacit_services.display import tables

    with _client(url) as client:
        edges, live = client.edges(), not client.status().over
    _show(
        [edge.to_json() for edge in edges],
        as_json,
        lambda console: tables.ledger(console, edges, live=live),
    )


@app.command()
def halt(
    url: Url = DEFAULT_URL,
    reason: Annotated[
        str, typer.Option(help="said to every edge, and kept in the journal")
    ] = "operator",
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """End the run: no further update is accepted."""
    with _client(url, rest_client.token(token_file)) as client:
        taken = client.halt(reason)
    _show(
        taken.to_json(),
        as_json,
        lambda _: f"halt taken ({taken.reason}); the run was {taken.state}",
    )


@app.command()
def release(
    edge: Annotated[str, typer.Argument(help="an edge in quarantine", show_default=False)],
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """End the quarantine that the guard has put an edge into."""
    with _client(url, rest_client.token(token_file)) as client:
        client.release(edge)
    _show({"id": edge, "released": True}, as_json, lambda _: f"{edge} may take part again")


@app.command()
def version() -> None:
    """Show the version of tacit."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        typer.echo(f"tacit {installed('tacit')}")
    except PackageNotFoundError:
        typer.echo("tacit (from a source tree, not installed)")


def _leave_with_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_leave_with_version,
            is_eager=True,
            help="show the version, and leave",
        ),
    ] = False,
) -> None:
    pass


@contextmanager
def _client(url: str, token: str | None = None) -> Iterator[Client]:
    need("edge")
    """A client whose errors are tacit's, since the client package shares no code with the rest."""
    from tacit_client import ApiError, Unreachable

    try:
        with rest_client.client(url, token) as client:
            yield client
    except Unreachable as error:
        raise ServiceError(
            f"{error}; is a run going on there? `tacit run` says its address (--url)"
        ) from error
    except ApiError as error:
        raise TacitError(f"{url}: {error}") from error


def _show(content: Any, as_json: bool, picture: Callable[[Console], RenderableType]) -> None:
    from tacit_services.display import tables

    if as_json:
        typer.echo(json.dumps(content, indent=2))
    else:
        console = tables.console()
        console.print(picture(console))


def _show_status(run: Status, as_json: bool) -> None:
    from tacit_services.display import tables

    _show(run.to_json(), as_json, lambda console: tables.status(console, run))


def _follow(client: Client, as_json: bool) -> bool:
    """Show every event until the run is over (True) or the aggregator ends the stream (False)."""
    from rich.live import Live

    from tacit_services.display import tables

    console = tables.console()
    if as_json or not console.is_terminal:
        return _until_over(client, lambda run: typer.echo(tables.line(run, as_json)))
    with Live(console=console, auto_refresh=False) as live:
        return _until_over(
            client, lambda run: live.update(tables.status(console, run), refresh=True)
        )


def _until_over(client: Client, show: Callable[[Status], None]) -> bool:
    for run in client.events():
        show(run)
        if run.over:
            return True
    return False


def _download(client: Client, out: Path, as_json: bool) -> None:
    import hashlib

    data = client.weights()  # checked against the announced digest
    assert data is not None  # no ETag was given
    temporary = out.with_name(out.name + ".part")
    try:
        temporary.write_bytes(data)
        temporary.replace(out)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error
    digest = hashlib.sha256(data).hexdigest()
    content = {"file": str(out), "bytes": len(data), "sha256": digest}
    _show(content, as_json, lambda _: f"{out}: {len(data)} bytes, sha256 {digest}")


if __name__ == "__main__":
    main()
