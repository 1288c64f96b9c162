"""The `tacit` command.

Heavy libraries are imported inside the command that needs them, so that `tacit status` is quick.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.errors import ConfigError, ConfigFaults, TacitError
from tacit_services import laboratory, launch
from tacit_services.cli import (
    ask,
    attack,
    audit,
    basis,
    check,
    conform,
    doctor,
    export,
    federations,
    flatten,
    freeze,
    health,
    join,
    keys,
    member_commands,
    new,
    owner_report,
    pki,
    predict,
    privacy_budget,
    recover,
    replay,
    run_commands,
    serve,
    show,
    simulate,
    tune,
    verify,
)
from tacit_services.cli import ledger as ledgers
from tacit_services.cli.data_folder import DataFolder, data_folder
from tacit_services.cli.options import AsJson
from tacit_services.extras import need
from tacit_services.launch import INTERRUPTED, complain
from tacit_services.versions import own_version

_CODES = (
    "Exit codes: 0 ok, 1 failure, 2 usage, run file or setting, 3 data, "
    "4 broker, store, port or REST unreachable, "
    "5 privacy (budget, ledger, policy), 6 wire, 7 the store has lost messages, 130 interrupted."
)

app = typer.Typer(
    name="tacit",
    help="Private asynchronous federated learning over MQTT.",
    epilog=f"`tacit --help --all` lists all commands. {_CODES}",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else [default: …] would be markup, and not shown
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a TacitError becomes one line on stderr, and its exit code.

    So does a file that the system refuses.
    """
    sys.exit(_exit_code(arguments))


def _exit_code(arguments: list[str] | None) -> int:
    _take_any_letter()
    try:
        with _all_shown(sys.argv[1:] if arguments is None else arguments) as shown:
            result = app(shown, prog_name="tacit", standalone_mode=False)
    except ConfigFaults as error:
        count = len(error.faults)
        return complain(f"{error.origin}: {count} faults", error.exit_code, error.faults)
    except TacitError as error:
        return complain(str(error), error.exit_code)
    except typer.TyperException as error:
        message = error.format_message()  # empty: the help has been printed instead
        if message:
            return complain(f"{message} (see tacit --help)", error.exit_code)
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads has seen enough, as in `tacit predict … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # the file system: a disk that is full, a folder that is not writable
        return complain(_of_the_system(error), TacitError.exit_code)
    except MemoryError:
        return complain("memory: there is not enough for this", TacitError.exit_code)
    if isinstance(result, int):
        return result
    return 0


@contextlib.contextmanager
def _all_shown(arguments: list[str]) -> Iterator[list[str]]:
    """Yield the arguments. Where they are `--help --all`, no command is hidden in the block."""
    if set(arguments) not in ({"--help", "--all"}, {"-h", "--all"}):
        yield arguments
        return
    entries: list[Any] = [*app.registered_commands, *app.registered_groups]
    hidden = [entry for entry in entries if entry.hidden is True]
    for entry in hidden:
        entry.hidden = False
    try:
        yield ["--help"]
    finally:
        for entry in hidden:
            entry.hidden = True


def _take_any_letter() -> None:
    """Let output that is no UTF-8 have a ? for what it cannot show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _of_the_system(error: OSError) -> str:
    """Return what the system refused, and where."""
    what = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return what
    return f"{error.filename}: {what}"


# -- a whole run, and the services --


def run(
    file: Annotated[Path, typer.Argument(help="run file (TOML)", show_default=False)],
    edges: Annotated[
        int | None, typer.Option(min=1, help="number of edges, instead of the file's")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder of the results [default: out/FILE]")
    ] = None,
    serve: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="REST address [default: a free port]")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="seed, instead of the file's")] = None,
    data: DataFolder = None,
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
    as_json: AsJson = False,
) -> None:
    """Run everything on this machine: broker, store, aggregator and edges, then a summary."""
    need("run")
    from tacit_services.children import preload

    preload.prepare(file)  # its imports go on while this process makes its own
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


def aggregator() -> None:
    """Serve one run; settings from TACIT_* in the environment."""
    need("aggregator")
    launch.aggregator()


def edge() -> None:
    """Be one edge of a run; settings from TACIT_* in the environment."""
    need("edge")
    launch.edge()


def peer() -> None:
    """Be one peer of a run without a server; settings from TACIT_*, as an edge's."""
    need("edge")
    launch.peer()


def party() -> None:
    """Be one party of a vertical run; settings from TACIT_* in the environment, as an edge's."""
    need("edge")
    launch.party()


def version() -> None:
    """Show the version of tacit."""
    typer.echo(f"tacit {own_version() or '(from a source tree, not installed)'}")


def _leave_with_version(requested: bool) -> None:
    if requested:
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


Command = Callable[..., object] | typer.Typer
# In the order in which they are shown, by who needs them; each with an example. What is in OTHERS
# is shown by `tacit --help --all`.
OTHERS = "Further commands, and the services"
_COMMANDS: tuple[tuple[str, tuple[tuple[Command, str], ...]], ...] = (
    (
        "Begin: a run of your own on this machine",
        (
            (new.new, "tacit new clinic --table public.csv --target outcome"),
            (check.check, "tacit check clinic/run.toml"),
            (tune.tune, "tacit tune clinic/run.toml --public public.csv --out clinic/tuned.toml"),
            (run, "tacit run clinic/run.toml --keep"),
            (ask.ask, 'tacit ask clinic/run.toml count "quantile age 0.01 0.99" --epsilon 0.2'),
        ),
    ),
    (
        "Model: take it along, and use it",
        (
            (export.export, "tacit export model --run out/run"),
            (predict.predict, "tacit predict model --table new.csv --out predictions.csv"),
            (flatten.flatten, "tacit flatten model age 90:110 --out model-2"),
            (show.show, "tacit show net.graph.json"),
        ),
    ),
    (
        "Host: open a federation",
        (
            (serve.serve, "tacit serve clinic --listen 0.0.0.0:8443"),
            (member_commands.app, "tacit members invite ada --role researcher --federation clinic"),
            (doctor.doctor, "tacit doctor https://host:8443"),
        ),
    ),
    (
        "Owner of rows: join one, and decide",
        (
            (join.join, "tacit join https://host:8443 --token … --ca sha256:… --data rows.csv"),
            (join.offers, "tacit offers accept retina"),
            (owner_report.report, "tacit report retina"),
            (ledgers.app, "tacit ledger --url http://127.0.0.1:8000"),
            (join.leave, "tacit leave"),
        ),
    ),
    (
        "Researcher: start runs in one",
        (
            (federations.submit, "tacit submit run.toml --federation clinic"),
            (federations.runs, "tacit runs --federation clinic"),
            (run_commands.begin, "tacit begin retina --federation clinic"),
            (federations.stop, "tacit stop retina --federation clinic"),
            (federations.results, "tacit results retina --out retina --federation clinic"),
        ),
    ),
    (
        "Trust: look into it",
        (
            (verify.verify, "tacit verify bundle.zip --anchor st-marys.json"),
            (attack.attack, "tacit attack out/run"),
            (audit.audit, "tacit audit"),
            (privacy_budget.app, "tacit plan privacy --epsilon 2 --pushes 100 --records 5000"),
        ),
    ),
    (
        OTHERS,
        (
            (simulate.simulate, "tacit simulate experiments/mapa-digits.toml"),
            (replay.replay, "tacit replay run.journal"),
            (freeze.freeze, "tacit freeze nets:Net --shape 64 --out net.graph.json"),
            (conform.app, "tacit conform algorithm fedadam:FedAdam"),
            (keys.keys, "tacit keys privacy"),
            (basis.basis, "tacit basis photos.safetensors --public photos --axes 256"),
            (pki.app, "tacit pki init"),
            (recover.recover, "tacit recover --from run.journal --store redis://127.0.0.1:6379/0"),
            (health.health, "tacit health --file /run/tacit/edge.json"),
            (aggregator, "TACIT_RUN_FILE=run.toml TACIT_BROKER=broker:1883 tacit aggregator"),
            (edge, "TACIT_RUN_FILE=run.toml TACIT_BROKER=broker:1883 tacit edge"),
            (peer, "TACIT_RUN_FILE=run.toml TACIT_BROKER=broker:1883 tacit peer"),
            (party, "TACIT_RUN_FILE=run.toml TACIT_BROKER=broker:1883 tacit party"),
            # Of one aggregator without a federation; their names stay for 0.3.
            (run_commands.status, "tacit status --url http://127.0.0.1:8000"),
            (run_commands.watch, "tacit watch --url http://127.0.0.1:8000"),
            (run_commands.model, "tacit model --out model.safetensors"),
            (run_commands.halt, "tacit halt --reason 'enough' --token-file token"),
            (run_commands.release, "tacit release edge-3 --token-file token"),
            (version, "tacit version"),
        ),
    ),
)


_WHATEVER = {"context_settings": {"allow_extra_args": True, "ignore_unknown_options": True}}


def _not_installed() -> None:
    """Needs the laboratory: pip install tacit-lab."""
    raise ConfigError(laboratory.ADVICE)


def _register() -> None:
    ledgers.app.callback(invoke_without_command=True)(run_commands.ledger)
    for panel, commands in _COMMANDS:
        for command, example in commands:
            _add(app, command, example, rich_help_panel=panel, hidden=panel == OTHERS)
    installed = laboratory.commands()
    for name in laboratory.NAMES if installed is None else installed:
        group, _, last = name.rpartition(".")
        to = privacy_budget.app if group else app
        options: dict[str, Any] = {"name": last, "rich_help_panel": None if group else OTHERS}
        options["hidden"] = not group
        if installed is None:
            _add(to, _not_installed, f"tacit {name.replace('.', ' ')}", **options, **_WHATEVER)
        else:
            _add(to, installed[name].run, installed[name].example, **options)


def _add(to: typer.Typer, command: Command, example: str, **options: Any) -> None:
    epilog = f"Example: {example}"
    if isinstance(command, typer.Typer):
        to.add_typer(command, epilog=epilog, **options)
    else:
        to.command(epilog=epilog, **options)(command)


_register()


if __name__ == "__main__":
    main()
