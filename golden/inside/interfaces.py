"""The interfaces by which people and programs use tacit.

They are commands, settings, keys of run files, REST, metrics and topics.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from golden.inside.snapshots import fed
from golden.layout import (
    INTERRUPTED,
    AggregatorSettings,
    EdgeSettings,
    Policy,
    RunFile,
    command_line,
    commands,
    enrolment,
    errors,
    metrics,
    topics,
)

PROSE = (
    "description",
    "summary",
    "title",
    "operationId",
    "version",
    "tags",
)  # the last three: names inside the code
TOPICS: dict[str, tuple[str | int, ...]] = {
    "model": ("R",),
    "up": ("R", "E", 3, 4),
    "up_all": ("R",),
    "up_of": ("R", "E"),
    "down": ("R", "E", "K", 4),
    "down_all": ("R", "E"),
    "presence": ("R", "E"),
    "presence_all": ("R",),
    "peer": ("R", "T", "F", 3, 4),
    "peer_all": ("R", "T"),
    "everything": (),
}
# what is typed, {nothing} being a file that is not there, and {junk} one that is of no kind
EXITS = {
    "version": "version",
    "unknown command": "frobnicate",
    "unknown option": "status --frobnicate",
    "no run file": "simulate {nothing}",
    "not a run file": "simulate {junk}",
    "bad token file": "halt --token-file {nothing}",
    "nobody there": "status --url http://127.0.0.1:9",
    "no journal": "replay {nothing}",
    "not a journal": "replay {junk}",
    "not a ledger": "ledger verify {junk}",
    "no ledger": "ledger verify {nothing}",
    "budget too small": "plan --epsilon 0 --pushes 1 --batch 1 --records 9",
}


def command_tree() -> dict[str, Any]:
    """Every command's parameters, what codes it ends with, and the settings of services and
    their defaults.
    """
    return {
        "commands": dict(_walk("tacit", commands())),
        "exit codes": _exit_codes(),
        "settings": {
            "tacit aggregator": _fields(AggregatorSettings),
            "tacit edge, party, peer": _fields(EdgeSettings),
        },
    }


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    parameters = {_name(found): _parameter(found) for found in command.params}
    yield name, {"parameters": parameters, "hidden": command.hidden}
    for inner, found in sorted(getattr(command, "commands", {}).items()):
        yield from _walk(f"{name} {inner}", found)


def _name(parameter: Any) -> str:
    return " ".join([*parameter.opts, *parameter.secondary_opts])


def _parameter(found: Any) -> dict[str, Any]:
    said = {
        "kind": found.param_type_name,
        "type": _type(found.type_descriptor.annotation),
        "required": found.required,
        "default": _plain(found.default),
        "environment": found.envvar,
        "repeated": found.multiple,
        "least": found.min,
        "most": found.max,
        "metavar": found.metavar,
    }
    return {key: value for key, value in said.items() if value is not None and value is not False}


def _fields(kind: Any) -> dict[str, Any]:
    return {
        name: {
            "type": _type(field.annotation),
            "default": "(required)" if field.is_required() else _plain(field.default),
        }
        for name, field in sorted(kind.model_fields.items())
    }


def _type(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _plain(value: object) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)


def _exit_codes() -> dict[str, Any]:
    kinds = {
        name: kind.exit_code for name, kind in vars(errors).items() if hasattr(kind, "exit_code")
    }
    with tempfile.TemporaryDirectory() as folder:
        junk = Path(folder) / "junk"
        junk.write_bytes(b"\0junk")
        typed = {
            name: line.format(junk=junk, nothing=f"{folder}/nothing").split()
            for name, line in EXITS.items()
        }
        ends = {name: _left_with(line) for name, line in typed.items()}
    return {"of errors": kinds | {"interrupted": INTERRUPTED}, "of commands": ends}


def _left_with(arguments: list[str]) -> Any:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            command_line(arguments)
        except SystemExit as left:
            return left.code
    return "returned"


def run_file() -> dict[str, Any]:
    """Keys, types, limits and defaults of run files and policies."""
    kinds: dict[str, type[BaseModel]] = {"run file": RunFile, "policy": Policy}
    return {name: inlined(without_prose(kind.model_json_schema())) for name, kind in kinds.items()}


def rest() -> dict[str, Any]:
    """Paths and schemas of the aggregator's interface, and of the enrolment's."""
    with tempfile.TemporaryDirectory() as folder:
        apps = {"aggregator": fed(Path(folder)).app, "enrolment": enrolment(Path(folder) / "pki")}
        return {name: without_prose(app.openapi()) for name, app in apps.items()}


def metric_names() -> dict[str, Any]:
    """Every sample of /metrics, with its type and labels."""
    with tempfile.TemporaryDirectory() as folder:
        families = list(metrics.registry(fed(Path(folder)).run_status).collect())
    return {
        sample.name: {"type": family.type, "labels": sorted(sample.labels)}
        for family in families
        for sample in family.samples
    }


def topic_names() -> dict[str, str]:
    """Every topic of protocol v1, with R for a run, E, T and F for edges, K for a kind of
    message.
    """
    return {name: getattr(topics, name)(*given) for name, given in TOPICS.items()}


def inlined(schema: dict[str, Any]) -> Any:
    """Return a schema with its definitions in the places that refer to them.

    Their names are the code's own.
    """
    definitions = schema.pop("$defs", {})

    def put(value: Any) -> Any:
        if isinstance(value, list):
            return [put(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return put(definitions[value["$ref"].rpartition("/")[2]]) | {
                k: v for k, v in value.items() if k != "$ref"
            }
        return {key: put(inner) for key, inner in value.items() if key != "discriminator"}

    return put(schema)


def without_prose(value: Any, named: bool = False) -> Any:
    """Return a schema without what is for people.

    named: its keys are names that somebody gave, of which none is prose.
    """
    if isinstance(value, list):
        return [without_prose(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without_prose(inner, not named and key in ("properties", "schemas", "$defs", "paths"))
        for key, inner in sorted(value.items())
        if named or key not in PROSE
    }
