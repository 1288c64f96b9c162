"""A new run on a table: its columns, guessed from a public sample, or an example of them."""

from __future__ import annotations

import re

from tacit_services.project.draft import FEDASYNC, Draft, DraftRequest, own_model, quoted
from tacit_services.project.guess import Guess, guessed
from tacit_services.project.templates import NETS

_BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys that TOML takes without quotes
_RATE = 4.0
_REGRESSION_RATE = 1.0


def draft(request: DraftRequest) -> Draft:
    """Draft a run on a table like the sample. Raises ConfigError, DataError."""
    columns, target = _columns(request)
    width = sum(
        1 if guess.is_number else len(guess.values) + 1 for guess in columns if not guess.left_out
    )
    if target.is_number:
        outputs = 1
    else:
        outputs = len(target.values)
    if request.sample is None:
        read = ""
    else:
        read = f", and guessed from {request.sample.name}"
    return Draft(
        title="table",
        data=[
            *_data(request, target),
            "",
            f"# All that is read; bounds and values are public{read}.",
            "[data.columns]",
            *map(_line, [*columns, target]),
        ],
        model=_small(width, outputs)
        if request.entry is None
        else own_model(request.entry, f"x has {width} numbers"),
        algorithm=[*FEDASYNC, f"learning_rate = {_REGRESSION_RATE if target.is_number else _RATE}"],
        nets=NETS if request.entry is None else None,
        row="row",
    )


def _small(width: int, outputs: int) -> list[str]:
    return [
        'name = "python"',
        'entry = "nets:Net"  # a class or function beside this file',
        f"arguments = {{ inputs = {width}, outputs = {outputs} }}",
    ]


def _columns(request: DraftRequest) -> tuple[list[Guess], Guess]:
    if request.sample is None:
        example = [Guess("age", 0.0, 110.0), Guess("sex", values=("f", "m"))]
        return example, Guess(request.target or "outcome", values=("no", "yes"))
    return guessed(request.sample, request.target, request.unit)


def _data(request: DraftRequest, target: Guess) -> list[str]:
    suffix = request.suffix
    if request.sites is None:
        what = f'private rows, dealt to the edges; or "site{{edge}}{suffix}", a file an edge'
    else:
        what = f"private rows: site0{suffix} of edge 0, site1{suffix} of edge 1, …"
    lines = [
        'kind = "table"',
        f"name = {quoted(request.name)}  # of the ledger that counts for these rows: keep it",
        f'train = "{request.train}"  # {what}',
        f'test = "public{suffix}"  # public, and of other people'
        if request.sample is not None
        else f'# test = "public{suffix}"  # public, and of other people',
        f"target = {quoted(target.name)}",
    ]
    if request.unit is not None:
        lines.append(f"unit = {quoted(request.unit)}  # whose privacy it is: all rows of one")
    lines.append(_rows(request, suffix))
    return lines


def _rows(request: DraftRequest, suffix: str) -> str:
    if request.unit is None:
        units = "rows"
    else:
        units = "units"
    if request.sites is not None:
        return f"rows = 5000  # public: {units} that a site is taken to have; write your number"
    if request.unit is None:
        counted = "rows"
    else:
        counted = "rows and unit_rows"
    return (
        f"# rows = 5000  # public: {units} of an edge; left out, {counted} are counted in "
        f"train{suffix}, and public"
    )


def _line(guess: Guess) -> str:
    if _BARE.fullmatch(guess.name):
        key = guess.name
    else:
        key = quoted(guess.name)
    if guess.left_out:
        return f"# {key}: is not read; it {guess.left_out}"
    if guess.is_number:
        return f"{key} = {{ low = {guess.low:.12g}, high = {guess.high:.12g} }}"
    return f"{key} = {{ values = {quoted(list(guess.values))} }}"
