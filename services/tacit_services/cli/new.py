"""`tacit new`: begins a run on a user's own table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit_services.extras import need


def new(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="folder to make")],
    table: Annotated[
        Path | None,
        typer.Option(help="PUBLIC sample (CSV, Parquet): columns, bounds and classes come of it"),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="column that is learnt [default: the last]")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="column that says whose a row is [default: a row is a unit]")
    ] = None,
    sites: Annotated[
        int | None,
        typer.Option(
            min=1, help="so many sites have a file each, site0.csv, … [default: one file is dealt]"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="your own module [default: a small one]"),
    ] = None,
) -> None:
    """Write a run file for your own table, with a policy, a module and a README."""
    need("table")
    from tacit_services.project.new import Wanted, make

    wanted = Wanted(table, target, unit, model, sites)
    files = make(folder, wanted)
    typer.echo(f"{folder}/: {', '.join(file.name for file in files)}")
    if table is not None:
        typer.echo(f"read from {table}, and public from now on: columns, bounds, classes")
    suffix = ".csv" if table is None else table.suffix
    names = f"{folder}/{wanted.train(suffix)}"
    typer.echo(f"next: put the private rows into {names.replace('{edge}', 'N')}, then")
    typer.echo(f"  tacit check {folder}/run.toml\n  tacit run {folder}/run.toml")
