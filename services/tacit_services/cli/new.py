"""`tacit new`: begins a run on a user's own table or pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import ConfigError
from tacit_services.cli.owners import owners_screen
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_services.project.draft import DraftRequest
    from tacit_services.project.new_folder import WrittenRun


# The options, in groups: what is learnt, of whom, and how the sample is written.
_Table = Annotated[
    Path | None,
    typer.Option(help="PUBLIC sample (CSV, Parquet, xlsx): columns, bounds and classes come of it"),
]
_Answers = Annotated[
    Path | None,
    typer.Option(help="answers.json of tacit ask: columns, bounds and classes come of it"),
]
_Images = Annotated[
    Path | None,
    typer.Option(help="PUBLIC pictures, a folder a class: classes and size come of them"),
]
_Target = Annotated[
    list[str] | None,
    typer.Option(help="column that is learnt; one for each of several labels [default: last]"),
]
_Counts = Annotated[bool, typer.Option("--counts", help="the target counts something: 0, 1, 2, …")]
_Time = Annotated[str, typer.Option(help="column of times to an event, which --event names")]
_Event = Annotated[str, typer.Option(help="column that says whether the event came at that time")]
_Unit = Annotated[
    str | None, typer.Option(help="column that says whose a row is [default: a row is a unit]")
]
_Sites = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="so many sites have data each, site0.csv, … [default: one file is dealt]; in a "
        "federation: so many members are waited for [default: 2]",
    ),
]
_Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="your own module; of a table also logistic, or network: a small one that is written "
        "[default: of a table a function of each column (ebm), of pictures a linear layer]",
    ),
]
_Separator = Annotated[
    str | None, typer.Option(help="what parts the sample's cells [default: found]")
]
_Decimal = Annotated[
    str | None, typer.Option(help="decimal mark of its numbers, . or , [default: found]")
]
_Encoding = Annotated[str | None, typer.Option(help="of its text, as cp1252 [default: found]")]
_Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="whether its first line names the columns",
        show_default="found",
    ),
]
_Sheet = Annotated[str | None, typer.Option(help="of an Excel workbook [default: its only one]")]


@owners_screen()
def new(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="folder to make")],
    table: _Table = None,
    images: _Images = None,
    answers: _Answers = None,
    target: _Target = None,
    counts: _Counts = False,
    time: _Time = "",
    event: _Event = "",
    unit: _Unit = None,
    sites: _Sites = None,
    model: _Model = None,
    separator: _Separator = None,
    decimal: _Decimal = None,
    encoding: _Encoding = None,
    header: _Header = None,
    sheet: _Sheet = None,
    federation: Annotated[
        bool,
        typer.Option(
            "--federation", help="for members of a federation, whose rows are their own; see submit"
        ),
    ] = False,
) -> None:
    """Write a run file for your own table or pictures; alone, with a policy. Both with a README."""
    if sum(public is not None for public in (table, images, answers)) > 1:
        raise ConfigError("--table, --images and --answers: a run begins with one; choose one")
    need("table" if images is None else "images")
    from tacit_services.project.draft import DraftRequest, StatedForm, StatedTarget
    from tacit_services.project.new_folder import make
    from tacit_services.settings import data_home

    _check_form(separator, decimal)
    form = StatedForm(separator, decimal, encoding, header, sheet)
    _check_event(time, event, others=bool(target) or counts)
    name, labels = _targets(target or [], counts=counts)
    goal = StatedTarget(labels, counts, time, event)
    request = DraftRequest(
        table, name, unit, model, sites, images, form=form, goal=goal, federation=federation,
        answers=answers,
    )  # fmt: skip
    written = make(folder, request, data_home())
    say(f"{folder}/: {', '.join(file.name for file in written.files)}")
    for line in _of_the_sample(request, written):
        say(line)
    for line in _next_steps(folder, request):
        say(line)


def _of_the_sample(request: DraftRequest, written: WrittenRun) -> Iterator[str]:
    """Yield what was read from the public sample, and what its owner should know."""
    if request.public is not None:
        size = "classes, grey or colours" + (", size" if request.entry is not None else "")
        if request.sample is None:
            read = size
        else:
            read = "columns, bounds, classes"
        yield f"read from {request.public}, and public from now on: {read}"
    if written.learns:
        yield f"learns: {written.learns}"
    for remark in written.remarks:
        yield f"note: {remark}"


def _next_steps(folder: Path, request: DraftRequest) -> Iterator[str]:
    """Yield what comes next."""
    if request.federation:
        yield f"next: write into {folder}/run.toml how many rows a member is taken to have, then"
        yield f"  tacit submit {folder}/run.toml --federation FOLDER"
        return
    names = f"{folder}/{request.train}".replace("{edge}", "N")
    if request.images is not None:
        what = "pictures"
    else:
        what = "rows"
    if request.sites is not None:
        keys = "rows" if request.unit is None else "rows and unit_rows"
        yield f"next: write how many {what} a site has into {folder}/run.toml: {keys}, then"
    yield f"next: put the private {what} into {names}, then"
    yield f"  tacit check {folder}/run.toml\n  tacit run {folder}/run.toml"


def _check_event(time: str, event: str, *, others: bool) -> None:
    """Raise ConfigError for a time to an event that lacks a column, or is not the only target."""
    if bool(time) != bool(event) or (time and time == event):
        raise ConfigError("--time, --event: the time to an event has two columns; name both")
    if time and others:
        raise ConfigError("--time, --event: are the target; leave out --target and --counts")


def _targets(names: list[str], *, counts: bool) -> tuple[str | None, tuple[str, ...]]:
    """Return the target's column, or the columns of several labels."""
    if counts and len(names) > 1:
        raise ConfigError("--counts: is for one --target")
    if len(names) < 2:
        return next(iter(names), None), ()
    if len(set(names)) < len(names):
        raise ConfigError("--target: names a column twice")
    return None, tuple(names)


def _check_form(separator: str | None, decimal: str | None) -> None:
    """Raise ConfigError for marks that cannot part cells or digits."""
    if separator is not None and (len(separator) != 1 or separator in '\r\n"'):
        raise ConfigError(f"--separator {separator!r}: expected one character")
    if decimal not in (None, ".", ","):
        raise ConfigError(f"--decimal {decimal!r}: expected . or ,")
