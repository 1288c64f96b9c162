"""The `tacit` command.

Heavy libraries are imported inside the command that needs them, so that `tacit status` is quick.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import TacitError
from tacit_services import launch
from tacit_services.cli import (
    audit,
    check,
    demo,
    design,
    export,
    figures,
    keys,
    measure,
    new,
    pki,
    predict,
    privacy_budget,
    remote,
    replay,
    simulate,
    tune,
)
from tacit_services.cli import ledger as ledgers
from tacit_services.cli.data_folder import Data, data_folder
from tacit_services.extras import need
from tacit_services.launch import INTERRUPTED, complain

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
app.command()(new.new)
app.command()(check.check)
app.command()(tune.tune)
app.command()(audit.audit)
app.command()(export.export)
app.command()(predict.predict)
app.command()(replay.replay)
app.command()(simulate.simulate)
app.command()(figures.figures)
app.command()(keys.keys)


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
    except BrokenPipeError:  # whoever reads has seen enough, as in `tacit predict … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    keep: Annotated[
        bool, typer.Option("--keep", help="serve the page on after the end, until Ctrl-C")
    ] = False,
    as_json: remote.AsJson = False,
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
        keep=keep,
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

app.command()(remote.status)
app.command()(remote.watch)
app.command()(remote.model)
ledgers.app.callback(invoke_without_command=True)(remote.ledger)
app.command()(remote.halt)
app.command()(remote.release)


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


if __name__ == "__main__":
    main()
