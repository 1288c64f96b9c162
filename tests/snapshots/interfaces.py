"""Commands, settings, keys of run files, REST, metrics and topics, as people and programs use them.

Prose is left out: it may change.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer.main
from fastapi import APIRouter
from tacit_services.aggregator.api import prometheus_metrics
from tacit_services.cli.main import app, main
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.enrollment.rest import RegistrationAuthority, create_app
from tacit_services.federation import federation_rest
from tacit_services.federation.federation_rest import HostDesks
from tacit_services.federation.member_desk import MemberDesk
from tacit_services.launch import INTERRUPTED
from tacit_services.settings import AggregatorSettings, EdgeSettings
from tacit_services.transport.problems import Problem

from tacit import errors
from tacit.config.run_schema import json_schema
from tacit.privacy.policy import Policy
from tacit.protocol import topics
from tests.snapshots.stored_keys import served_run

# The last three are names inside the code.
PROSE = {"description", "summary", "title", "operationId", "version", "tags"}
NAMES = {"properties", "schemas", "$defs", "paths"}  # their keys are names, of which none is prose
FACTS = ("required", "default", "envvar", "multiple", "min", "max", "metavar")  # as typer has them
COMMANDS = Path(__file__).parent / "commands.json"


def commands() -> dict[str, Any]:
    """Return every command's parameters, exit codes, and the services' settings.

    The lines that are typed to see exit codes stand in commands.json.
    """
    typed = json.loads(COMMANDS.read_text(encoding="utf-8"))["exit codes"]["of commands"]
    kinds = {name: kind for name, kind in vars(errors).items() if hasattr(kind, "exit_code")}
    codes = {name: kind.exit_code for name, kind in kinds.items()} | {"interrupted": INTERRUPTED}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("junk").write_bytes(b"\0junk")  # a file of no kind
        ends = {line: _exit_code(line.split()[1:]) for line in typed}
    return {
        "commands": dict(_parameters("tacit", typer.main.get_command(app))),
        "exit codes": {"of errors": codes, "of commands": ends},
        "settings of tacit aggregator": schema(AggregatorSettings.model_json_schema()),
        "settings of tacit edge, party, peer": schema(EdgeSettings.model_json_schema()),
    }


def _exit_code(arguments: list[str]) -> Any:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            main(arguments)
        except SystemExit as end:
            return end.code
    return "returned"


def _parameters(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    described = {}
    for parameter in command.params:
        facts = {fact: getattr(parameter, fact) for fact in FACTS}
        stated = {k: v for k, v in facts.items() if v is not None and v is not False}
        kind = parameter.type_descriptor.annotation
        stated["type"] = kind.__name__ if isinstance(kind, type) else str(kind)
        stated["kind"] = parameter.param_type_name
        described[" ".join([*parameter.opts, *parameter.secondary_opts])] = stated
    yield name, {"parameters": described, "hidden": command.hidden}
    for inner, subcommand in getattr(command, "commands", {}).items():
        yield from _parameters(f"{name} {inner}", subcommand)


def run_file() -> dict[str, Any]:
    """Return keys, types, limits and defaults of run files and policies."""
    return {"run file": schema(json_schema()), "policy": schema(Policy.model_json_schema())}


def rest() -> dict[str, Any]:
    """Return paths and schemas of three interfaces: aggregator, enrolment, federation's host."""
    with tempfile.TemporaryDirectory() as folder:
        authority = CertificateAuthority.create(Path(folder) / "pki")
        enrolment = create_app(RegistrationAuthority(authority))
        apps = {
            "aggregator": served_run(Path(folder)).app,
            "enrolment": enrolment,
            "federation": federation_rest.create_app(_routers_of_host(), ()),
        }
        problem = without_prose(Problem.model_json_schema())
        stated = {name: without_prose(app.openapi()) for name, app in apps.items()}
        return {"a problem": problem, **with_name(stated, problem, "a problem")}


def _routers_of_host() -> Iterator[APIRouter]:
    """Yield the routes of a federation's host, behind which nobody answers."""
    nobody: dict[str, Any] = {each.name: None for each in fields(HostDesks)}
    desk: Any = None
    return HostDesks(**nobody | {"members": MemberDesk(desk, desk, desk)}).routers()


def metric_names() -> dict[str, Any]:
    """Return every sample of /metrics, with its type and labels."""
    with tempfile.TemporaryDirectory() as folder:
        families = list(prometheus_metrics.registry(served_run(Path(folder)).run_status).collect())
    return {
        sample.name: {"type": family.type, "labels": sorted(sample.labels)}
        for family in families
        for sample in family.samples
    }


def topic_names() -> dict[str, str]:
    """Return every topic of protocol v1, where letters stand for names and numbers."""
    stated = {}
    for name, make in inspect.getmembers(topics, inspect.isfunction):
        parameters = list(inspect.signature(make).parameters)
        if parameters[:1] in ([], ["run"]):
            stated[name] = make(*"ABCDE"[: len(parameters)])
    return stated


def schema(whole: dict[str, Any]) -> Any:
    """Return the JSON schema of a model without prose, its definitions where they are used."""
    plain = without_prose(whole)
    return inlined(plain, plain.get("$defs", {}))


def inlined(value: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema with its definitions, whose names are the code's, where they are used."""
    if isinstance(value, list):
        return [inlined(each, definitions) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        value = definitions[value["$ref"].rpartition("/")[2]] | value
    dropped = ("$ref", "$defs", "discriminator")
    return {key: inlined(each, definitions) for key, each in value.items() if key not in dropped}


def with_name(value: Any, schema_: dict[str, Any], name: str) -> Any:
    """Return a schema in which `name` stands for each `schema_`."""
    if value == schema_:
        return name
    if isinstance(value, dict):
        return {key: with_name(each, schema_, name) for key, each in value.items()}
    if isinstance(value, list):
        return [with_name(each, schema_, name) for each in value]
    return value


def without_prose(value: Any, *, inside_names: bool = False) -> Any:
    """Return a schema without what is for people. inside_names: its keys are names."""
    if isinstance(value, list):
        return [without_prose(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without_prose(each, inside_names=not inside_names and key in NAMES)
        for key, each in value.items()
        if inside_names or key not in PROSE
    }
