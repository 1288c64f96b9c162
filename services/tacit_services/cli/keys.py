"""`tacit keys`: every key of a run file, its values and its meaning, read from the code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from tacit import shown
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
}
_CHOSEN_BY = {"algorithm": "name", "data": "kind"}  # the key that chooses a section's class
_INTRODUCTION = """\
# The run file

Every key, as `tacit keys` prints it from the code (`tacit keys SECTION`: one section;
`tacit keys --schema`: a JSON schema, with which an editor checks and completes TOML).
A key without a default must be given; *None* is what a key means that is left out.
Unknown keys are refused. Ready-made files: [experiments](../experiments);
what the letters mean: [algorithms.md](algorithms.md).
"""


def keys(
    section: Annotated[
        str, typer.Argument(help="a section, as privacy; an algorithm, as fedasync; else all")
    ] = "",
    schema: Annotated[
        bool, typer.Option("--schema", help="print the whole run file's JSON schema")
    ] = False,
) -> None:
    """Print the keys of a run file with their ranges, defaults and meanings, as Markdown."""
    if schema:
        from tacit.config.run_schema import json_schema

        typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return
    parts = list(_parts())
    chosen = [(title, kind) for title, names, kind in parts if not section or section in names]
    if not chosen:
        choices = ", ".join(sorted({name for _, names, _ in parts for name in names}))
        raise ConfigError(f"SECTION={section!r}: not part of a run file; use one of {choices}")
    tables = [f"## {title}\n\n{_table(kind)}" for title, kind in chosen]
    typer.echo("\n".join(tables if section else [_INTRODUCTION, *tables]), nl=False)


def _parts() -> Iterator[tuple[str, tuple[str, ...], type[BaseModel]]]:
    """Yield (heading, the names it can be asked for by, its class) of every section."""
    from tacit.algorithms.own.own_rounds import RoundSettings
    from tacit.algorithms.own.own_settings import EDGE_TASKS
    from tacit.config import RunFile, sections_of
    from tacit.config.asked_table import AskedTable
    from tacit.config.features import FrontSection, ProjectionSection, StandardiseSection
    from tacit.config.learnt import LearntSection
    from tacit.config.own_arrays import BoundsSection, TokensSection
    from tacit.config.own_column import ColumnSection
    from tacit.config.own_target import EventTarget, NextToken
    from tacit.config.party_columns import PartySection
    from tacit.config.sections import Away, Delay

    for name in RunFile.model_fields:
        for kind in sections_of(RunFile, name):
            if kind is AskedTable:  # keys of a table that has no target
                continue
            by = _CHOSEN_BY.get(name)
            if by:
                chosen_by = get_args(kind.model_fields[by].annotation)
            else:
                chosen_by = ()
            yield f"[{name}] {', '.join(chosen_by)}".rstrip(), (name, *chosen_by), kind
    yield (
        "[algorithm] entry, beside the algorithm's own keys",
        ("algorithm", "entry"),
        RoundSettings,
    )
    for task in EDGE_TASKS:
        (kind,) = get_args(task.model_fields["kind"].annotation)
        yield f'An [algorithm] edge, as `{{kind = "{kind}"}}`', ("algorithm", kind), task
    yield "A step of [data] features, as `{low = 0, high = 16}`", ("data",), StandardiseSection
    yield 'A step of [data] features, as `{basis = "strokes"}`', ("data",), ProjectionSection
    yield 'A step of [data] features, as `{front = "nets:Front"}`', ("data",), FrontSection
    yield "A column of [data] table, as `age = {low = 0, high = 110}`", ("data",), ColumnSection
    yield "A party of [data] columns, as `[[data.parties]]`", ("data",), PartySection
    yield "The [data] table learnt, as `{questions = 6, …}`", ("data",), LearntSection
    yield 'A target of [data] table, as `{time = "days", …}`', ("data",), EventTarget
    yield 'A target of [data] table, as `{next_token = "note"}`', ("data",), NextToken
    yield "A target of [data] arrays, as `{low = 0, high = 100}`", ("data",), BoundsSection
    yield "A target of [data] arrays, as `{tokens = 30000}`", ("data",), TokensSection
    yield "A duration of [network], as `compute = {seconds = 2.0}`", ("network",), Delay
    yield "An absence of [network], as `away = [{edge = 1, leaves = 10.0}]`", ("network",), Away


def _table(kind: type[BaseModel]) -> str:
    """Return a section's keys as a Markdown table, one row for each."""
    shape = kind.model_json_schema()
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name, key in shape["properties"].items():
        default = key.get("default", "")
        if default is None:
            default = "left out"
        else:
            if name in shape.get("required", ()):
                default = ""
            else:
                default = f"`{shown.toml(default)}`"
        rows.append(
            f"| `{name}` | {_value(key, shape)} | {default} | {_cell(key.get('description', ''))} |"
        )
    return "\n".join(rows) + "\n"


def _value(key: dict[str, Any], shape: dict[str, Any]) -> str:
    """Return the values that a key may have, in words."""
    if options := key.get("anyOf", key.get("oneOf")):  # with null: may be left out
        each = (_value(option, shape) for option in options if option.get("type") != "null")
        return " or ".join(dict.fromkeys(each))
    if "$ref" in key:
        return "table, below"
    if choices := key.get("enum", [key["const"]] if "const" in key else []):
        return " · ".join(f"`{choice}`" for choice in choices)
    if key["type"] == "array":
        return f"list of {_value(key['items'], shape)}"
    words = {"string": "text", "boolean": "true or false"}.get(key["type"], str(key["type"]))
    return ", ".join(
        [words, *(bound.format(f"{key[name]:g}") for name, bound in _BOUNDS.items() if name in key)]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")
