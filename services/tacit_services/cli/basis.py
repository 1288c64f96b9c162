"""`tacit basis`: public axes for the features of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit_services.cli.data_folder import DataFolder, data_folder
from tacit_services.cli.owners import owners_screen
from tacit_services.cli.say import say
from tacit_services.extras import need

_STEPS = ("upright", "scattering")


@owners_screen()
def basis(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="file to write (.safetensors)")],
    public: Annotated[
        str,
        typer.Option(
            help="PUBLIC records: a folder or table of pictures, an npz or safetensors with x, or "
            "the name of a published data set"
        ),
    ],
    axes: Annotated[int, typer.Option(min=1, help="how many")],
    features: Annotated[
        str, typer.Option(help="steps before it, with commas: upright, scattering")
    ] = "",
    size: Annotated[
        int | None,
        typer.Option(
            min=1, help="side that pictures are brought to [default: 28; published: none]"
        ),
    ] = None,
    channels: Annotated[
        int | None,
        typer.Option(min=1, max=3, help="of pictures: 1 or 3 [default: 1; published: theirs]"),
    ] = None,
    low: Annotated[float, typer.Option(help="lower bound of x")] = 0.0,
    high: Annotated[float, typer.Option(help="upper bound of x")] = 255.0,
    most: Annotated[
        int | None, typer.Option(min=1, help="records that are read, at most [default: all]")
    ] = None,
    data: DataFolder = None,
) -> None:
    """Compute a public basis for `data.features`, in bounded memory; refused for private files."""
    need("edge")
    from tacit.errors import ConfigError
    from tacit_services.display.progress import LongWork
    from tacit_services.project.basis_request import BasisRequest, make
    from tacit_services.settings import data_home

    steps = tuple(step.strip() for step in features.split(",") if step.strip())
    if unknown := [step for step in steps if step not in _STEPS]:
        raise ConfigError(f"--features {unknown[0]}: expected {', '.join(_STEPS)}")
    if size is None:
        sides = None
    else:
        sides = (size, size)
    request = BasisRequest(public, steps, axes, sides, channels, low, high, most)  # type: ignore[arg-type]
    with LongWork("reading records", most) as work:
        written = make(out, request, data_folder(data), data_home(), work.at)
    say(f"{out}: {axes} axes of {written.says}; SHA-256 {written.sha256}")
    typer.echo(
        f'next: features = [… {{ basis = "{out.name}", axes = {axes} }}], {out.name} beside it'
    )
