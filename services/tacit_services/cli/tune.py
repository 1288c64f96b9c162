"""`tacit tune`: finds settings on public or made-up rows, at no cost in ε."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit_services.cli.data_folder import DataFolder, data_folder
from tacit_services.cli.owners import owners_screen
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_services.project.tuning import Trial, TuningResult


@owners_screen()
def tune(
    file: Annotated[Path, typer.Argument(help="run file (TOML)", show_default=False)],
    public: Annotated[
        str | None,
        typer.Option(
            help="PUBLIC or made-up rows, in the form of the private ones; of published data: the "
            "name of a data set"
        ),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(help="answers.json of `tacit ask`: rows are made up that agree with it"),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, max=10_000, help="settings to try")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="of the search")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="run file to write, with the best settings")
    ] = None,
    data: DataFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Search clip, rate, batch and updates of a run in the simulator, on public or made-up rows."""
    need("tune")
    from tacit import config
    from tacit.errors import ConfigError
    from tacit_services.display.progress import TimeLeft
    from tacit_services.project import public_rows, tuning
    from tacit_services.settings import data_home

    time_left = TimeLeft()

    def shown(number: int, trial: Trial) -> None:
        say(f"{number}/{trials} {_line_of(trial)}{time_left.after(number, trials)}", err=True)

    if out is not None and out.exists():
        raise ConfigError(f"--out {out}: is there already; nothing is overwritten")
    if (public is None) == (answers is None):
        raise ConfigError("--public, --answers: name one of them, whose rows settings are tried on")
    run = config.load(file)
    if (
        out is not None
        and run.data.kind != "benchmark"
        and out.resolve().parent != file.resolve().parent
    ):
        raise ConfigError(
            f"--out {out}: its data lies beside {file}; write {file.parent / out.name}"
        )
    if answers is not None:
        rows = public_rows.rows_of_answers(run, answers, seed)
    else:
        rows = public_rows.public_rows(run, public or "", data_folder(data), data_home())
    result = tuning.tune(run, rows, trials=trials, seed=seed, report=shown)
    if out is not None:
        text = file.read_text("utf-8")
        out.write_text(tuning.written(text, result.best.values, file.parent), "utf-8")
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=2))
        return
    _show(result, made_up=answers is not None)
    say(f"next: tacit check {out or file}")


def _show(result: TuningResult, *, made_up: bool) -> None:
    from tacit_services.project import tuning

    kind = "made-up" if made_up else "public"
    say(f"best {result.metric} on {kind} rows: {result.best.metric:.4g}")
    if made_up:
        say("these rows agree with the answers and with nothing else: the figure is no model's")
    say("\n".join(tuning.lines(result.best.values)))


def _line_of(trial: Trial) -> str:
    values = ", ".join(f"{name} {value:g}" for name, value in trial.values.items())
    return f"{values}: {trial.why if trial.metric is None else f'{trial.metric:.4g}'}"
