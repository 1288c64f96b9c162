"""`tacit simulate`: a run file under a virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit_services.cli.data_folder import DataFolder, data_folder
from tacit_services.extras import need


def simulate(
    file: Annotated[Path, typer.Argument(help="run file (TOML)", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="folder of the results [default: out/FILE-simulated]")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="seed, instead of the file's; of the noise, too")
    ] = None,
    edges: Annotated[
        int | None, typer.Option(min=1, help="number of edges, instead of the file's")
    ] = None,
    data: DataFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Train in one process, in virtual time: the same result for the same seed."""
    need("figures")
    from tacit import config
    from tacit_services.testbed import simulated_run as simulation

    definition = config.load(file, edges=edges, seed=seed).define()
    folder = out or Path("out") / f"{file.stem}-simulated"
    simulation.run(definition, out=folder, data=data_folder(data), as_json=as_json)
