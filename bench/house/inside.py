"""`python -m bench.house.inside WALK FOLDER`: one walk in a process of the tree's own.

Its steps come out as one line of JSON. The tree comes first on the import path. What runs is what
users run, its commands, so nothing of a tree is named here but what the constants below name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_settings import BaseSettings

import tacit
from bench.house.walk import Follower, Function, Operations, Traced, Typed

COMMAND_LINES = ("tacit_services.cli.main", "services.cli")  # the newest first
SETTINGS = ("tacit_services.settings", "services.runtime.settings")
GRADIENTS = "example_gradients"  # its result is where a gradient's walk begins
CONNECT, WRITE = "Connection.start", "write"  # what an aggregator, and a simulation, comes to
PUBLISH = "Connection.publish"  # and where a value leaves a process
UPDATE = "/up/"  # in the topic of what an edge says
UPDATE_BYTES = 1000  # of an update at least, and of nothing else that an edge says

Said = Callable[[Follower], None]


def main() -> None:
    """Walk, and print."""
    walk, folder = sys.argv[1], Path(sys.argv[2])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the tree prints is no answer

    def said(follower: Follower) -> None:
        answer.write(json.dumps([[step.file, step.name] for step in follower.steps]) + "\n")
        answer.flush()

    tree = Path(str(tacit.__file__)).resolve().parents[2]
    if walk == "run file":
        command = ("simulate", str(folder / "run.toml"), "--out", str(folder / "out"))
        configured(tree, said, *command, goal=WRITE)
    elif walk == "settings":
        configured(tree, said, "aggregator", goal=CONNECT)
    elif walk == "gradient":
        # The way that any model takes: a compiled loop is no step that could be followed.
        sys.modules["numba"] = None  # type: ignore[assignment]
        traced(tree, said, _gradients, "edge")
    else:
        traced(tree, said, Arrival(), "aggregator")


def configured(tree: Path, said: Said, *command: str, goal: str) -> None:
    """Follow the run file, its sections, and the settings of services through a command.

    Nothing is said of a command that ends before it calls `goal`.
    """
    reached = set[str]()
    kinds = (*_sections(import_module("tacit.config").RunFile), *_settings())
    value = Typed(kinds, other=(import_module("tacit.models").Model,))
    follower = Follower(tree, value, lambda function, *_: reached.add(function.name))
    for kind in kinds:
        _watch(kind, follower)
    with follower:
        _run(*command)
    if goal in reached:
        said(follower)


def traced(tree: Path, said: Said, began: Callable[..., object], command: str) -> None:
    """Follow what `began` finds, until it is published; the command goes on."""
    value = Traced()
    follower = Follower(tree, value, began)

    def ended(function: Function) -> bool:
        if function.name == PUBLISH:
            said(follower)
        return function.name == PUBLISH

    follower.ended = ended
    with Operations(value), follower:
        _run(command)


def _gradients(function: Function, event: str, given: Iterable[object]) -> object:
    """The newest gradients: at its start an edge makes some that it does not use."""
    return next(iter(given)) if event == "return" and function.name == GRADIENTS else None


class Arrival:
    """The payload of the first update that an aggregator hears."""

    def __init__(self) -> None:
        self._come = False

    def __call__(self, function: Function, event: str, given: Iterable[object]) -> object:
        """It, or None."""
        for thing in () if self._come or event != "call" else given:
            topic, payload = getattr(thing, "topic", ""), getattr(thing, "payload", b"")
            if isinstance(topic, str) and UPDATE in topic and len(payload) > UPDATE_BYTES:
                self._come = True
                return bytes(payload)
        return None


def _run(*arguments: str) -> None:
    """One command of the tree's; how it exits is no matter here."""
    try:
        _first(COMMAND_LINES).main(list(arguments))
    except SystemExit:
        return


def _first(names: Iterable[str]) -> Any:
    """The first of these modules that the tree has."""
    for name in names:
        try:
            return import_module(name)
        except ModuleNotFoundError as missing:
            if not name.startswith(str(missing.name)):
                raise
    raise ImportError(f"none of {names}")


def _sections(kind: type[BaseModel]) -> set[type[BaseModel]]:
    """`kind`, and the models in its fields."""
    found, todo = {kind}, [field.annotation for field in kind.model_fields.values()]
    while todo:
        annotation: Any = todo.pop()
        todo.extend(get_args(annotation))
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found |= _sections(annotation)
    return found


def _settings() -> set[type[BaseModel]]:
    """Of every service."""
    module = _first(SETTINGS)
    kinds = (thing for thing in vars(module).values() if isinstance(thing, type))
    return {kind for kind in kinds if issubclass(kind, BaseSettings) and kind is not BaseSettings}


def _watch(kind: type[BaseModel], follower: Follower) -> None:
    """Tell `follower` of every attribute that is read of a `kind`."""
    original: Callable[[Any, str], Any] = kind.__getattribute__

    def read(self: object, name: str) -> Any:
        if not name.startswith("_"):
            follower.read(sys._getframe(1))
        return original(self, name)

    kind.__getattribute__ = read  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
