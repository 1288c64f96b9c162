"""`tacit flatten`: an additive model changed by hand."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tacit_services.cli.say import say
from tacit_services.extras import need


class FlatOption(StrEnum):
    """What bins are set to."""

    zero = "zero"
    neighbours = "neighbours"


def flatten(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="folder of `tacit export`")],
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="whose function is changed")],
    bins: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BIN",
            help="a value; of numbers one in the bin, or LOW:HIGH [default: all of the column]",
        ),
    ] = None,
    to: Annotated[
        FlatOption, typer.Option(help="what they are set to: zero, or the mean of their neighbours")
    ] = FlatOption.zero,
    *,
    out: Annotated[Path, typer.Option(metavar="MODEL2", help="folder to make")],
) -> None:
    """Set bins of an additive model's column to 0, or to their neighbours; its card lists them."""
    need("edge")
    from tacit import exported

    say(exported.flatten(model, column, bins or [], out, to.value))
    say(f"read {out}/README.md: what was changed; what was measured was measured before")
