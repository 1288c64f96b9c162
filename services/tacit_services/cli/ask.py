"""`tacit ask`: questions about rows, answered at one ε."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import ConfigError
from tacit_services.cli.options import AsJson
from tacit_services.extras import need


def ask(
    file: Annotated[Path, typer.Argument(help="run file (TOML): [data] and [edges] are enough")],
    questions: Annotated[
        list[str] | None,
        typer.Argument(
            help='as "count", "missing age", "histogram age 0 110 22", "quantile age 0.5", '
            '"mean income", "counts by sex"; left out: those of [ask] in the file',
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="ε of all questions together", show_default=False)
    ] = None,
    weight: Annotated[
        list[float] | None,
        typer.Option(help="a question's part of the budget, one for each", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder of the answers [default: out/FILE.ask]")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            envvar="TACIT_POLICY", help="what the edges allow (TOML) [default: the run file]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask about rows before a run: counts, quantiles, means; each owner's answers have noise."""
    need("run")
    from tacit_services.children import preload
    from tacit_services.project import ask_file

    if questions and epsilon is None:
        raise ConfigError("--epsilon: missing; the ε of all questions together, as 0.2")
    if questions and epsilon is not None:
        file = ask_file.asked(file, questions, weight or (), epsilon)
    elif epsilon is not None or weight:
        raise ConfigError(
            "QUESTIONS: missing, as --epsilon and --weight are theirs; say them, as count or "
            '"mean age", or leave both out where the file has [ask]'
        )
    preload.prepare(file)
    from tacit_services.testbed import local_run

    code = local_run.run(
        file,
        edges=None,
        out=out or Path("out") / file.stem,
        serve=None,
        seed=None,
        data=None,
        as_json=as_json,
        policy=policy,
    )
    raise typer.Exit(code)
