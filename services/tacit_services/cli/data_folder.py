"""The option --data, which several commands have, and the folder that it means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

BESIDE = Path("../shared/data")  # a folder beside the checkout, which need not be there

DataFolder = Annotated[
    Path | None,
    typer.Option(envvar="TACIT_DATA", help=f"folder of the data [default: {BESIDE}, if there]"),
]


def data_folder(folder: Path | None) -> Path | None:
    """Return `folder`, or without one the data folder beside the checkout if it exists."""
    if folder is None and BESIDE.is_dir():
        return BESIDE
    return folder
