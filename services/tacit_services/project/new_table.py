"""A new run on a table: its columns, guessed from a public sample, or an example of them."""

from __future__ import annotations

import re

from tacit_services.project.draft import FEDASYNC, Draft, DraftRequest, own_model, quoted
from tacit_services.project.guess import Guess, guessed
from tacit_services.project.templates import NETS

_BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys that TOML takes without quotes
_RATE = 4.0
_REGRESSION_RATE = 1.0


def draft(wanted: DraftRequest) -> Draft:
    """Draft a run on a table like the sample. Raises ConfigError, DataError."""
    columns, target = _columns(wanted)
    width = sum(1 if one.is_number else len(one.values) + 1 for one in columns if not one.left_out)
    if target.is_number:
        outputs = 1
    else:
        outputs = len(target.values)
    if wanted.sample is None:
        read = ""
    else:
        read = f", and guessed from {wanted.sample.name}"
    return Draft(
        title="table",
        data=[
            *_data(wanted, target),
            "",
            f"# All that is read; bounds and values are public{read}.",
            "[data.columns]",
            *map(_line, [*columns, target]),
        ],
        model=_small(width, outputs)
        if wanted.entry is None
        else own_model(wanted.entry, f"x has {width} numbers"),
        algorithm=[*FEDASYNC, f"learning_rate = {_REGRESSION_RATE if target.is_number else _RATE}"],
        nets=NETS if wanted.entry is None else None,
        row="row",
    )


def _small(width: int, outputs: int) -> list[str]:
    return [
        'name = "python"',
        'entry = "nets:Net"  # a class or function beside this file',
        f"arguments = {{ inputs = {width}, outputs = {outputs} }}",
    ]


def _columns(wanted: DraftRequest) -> tuple[list[Guess], Guess]:
    if wanted.sample is None:
        example = [Guess("age", 0.0, 110.0), Guess("sex", values=("f", "m"))]
        return example, Guess(wanted.target or "outcome", values=("no", "yes"))
    return guessed(wanted.sample, wanted.target, wanted.unit)


def _data(wanted: DraftRequest, target: Guess) -> list[str]:
    suffix = wanted.suffix
    if wanted.sites is None:
        what = f'private rows, dealt to the edges; or "site{{edge}}{suffix}", a file an edge'
    else:
        what = f"private rows: site0{suffix} of edge 0, site1{suffix} of edge 1, …"
    lines = [
        'kind = "table"',
        f"name = {quoted(wanted.name)}  # of the ledger that counts for these rows: keep it",
        f'train = "{wanted.train}"  # {what}',
        f'test = "public{suffix}"  # public, and of other people'
        if wanted.sample is not None
        else f'# test = "public{suffix}"  # public, and of other people',
        f"target = {quoted(target.name)}",
    ]
    if wanted.unit is not None:
        lines.append(f"unit = {quoted(wanted.unit)}  # whose privacy it is: all rows of one")
    lines.append(_rows(wanted, suffix))
    return lines


def _rows(wanted: DraftRequest, suffix: str) -> str:
    if wanted.unit is None:
        units = "rows"
    else:
        units = "units"
    if wanted.sites is not None:
        return f"rows = 5000  # public: {units} that a site is taken to have; write your number"
    if wanted.unit is None:
        counted = "rows"
    else:
        counted = "rows and unit_rows"
    return (
        f"# rows = 5000  # public: {units} of an edge; left out, {counted} are counted in "
        f"train{suffix}, and public"
    )


def _line(one: Guess) -> str:
    if _BARE.fullmatch(one.name):
        key = one.name
    else:
        key = quoted(one.name)
    if one.left_out:
        return f"# {key}: is not read; it {one.left_out}"
    if one.is_number:
        return f"{key} = {{ low = {one.low:.12g}, high = {one.high:.12g} }}"
    return f"{key} = {{ values = {quoted(list(one.values))} }}"
