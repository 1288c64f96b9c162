"""A trial of a user's own server: one version from made-up updates, before anything costs ε."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.own.own_code import calling
from tacit.algorithms.own.saved_state import SavedState
from tacit.config.definition import Definition
from tacit.errors import ConfigError
from tacit.protocol.messages import Hello, Update

_SMALL = 1e-3  # of the made-up updates' numbers


def tried(definition: Definition[Any], make: Callable[[], ServerRole]) -> ServerRole:
    """Return a server of the run at its beginning, after another one has made a version.

    Raises ConfigError where that fails, makes none or several, or where its state is lost between a
    snapshot and its continuation.
    """
    entry = definition.algorithm.name
    role = _made(entry, make)
    again = _made(entry, make)
    _make_a_version(definition, role)
    with calling(entry, "saved"):
        tensors, values = role.state()
        again.restore(tensors, json.loads(json.dumps(values)))
    with calling(entry, "learning_rate"):
        schedule = again.schedule()
    json.dumps(schedule)
    return _made(entry, make)


def _made(entry: str, make: Callable[[], ServerRole]) -> ServerRole:
    with calling(entry, "making the server"):
        role: object = make()
    if not isinstance(role, ServerRole):
        raise ConfigError(
            f"algorithm.entry={entry}: the server is a {type(role).__name__}; derive the class of "
            "role from AlgorithmServer or AlgorithmRounds"
        )
    if isinstance(role, SavedState) and not role.has_begun:
        raise ConfigError(
            f"algorithm.entry={entry}: {type(role).__name__}.__init__ never called "
            "super().__init__(definition, model)"
        )
    return role


def _make_a_version(definition: Definition[Any], role: ServerRole) -> None:
    entry = definition.algorithm.name
    uploads = definition.traits.uploads
    names = definition.worker_names[: definition.edges.count]
    plan = definition.plans.default
    for name in names:
        hello = Hello(
            name, plan.epsilon, plan.delta, plan.declared, 1.0, plan.clip_min, plan.clip_max, ()
        )
        with calling(entry, "answering an edge"):
            role.on_message(hello)
    generator = torch.Generator().manual_seed(1)
    for number in range(uploads):
        if role.version:
            raise ConfigError(
                f"algorithm.entry={entry}: {number} updates made a version, and uploads() says "
                f"that {uploads} make one"
            )
        vector = _SMALL * torch.randn(role.update_size, generator=generator)
        sender = names[number % len(names)]
        with calling(entry, "answering an update"):
            role.on_message(Update(sender, role.version, vector, role.clip, ()))
    if role.version != 1:
        raise ConfigError(
            f"algorithm.entry={entry}: {uploads} updates, which make one version by uploads(), "
            f"made {role.version}; does each step, or the last of them, call move once?"
        )
