"""FedAsync and its relatives in tests: their run files, a server, and messages to it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tacit.algorithms import registry
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.models import build
from tacit.privacy.accounting import Spend
from tacit.protocol.messages import Hello, Outgoing, Update
from tests.helpers import run_files
from tests.helpers.run_files import Layer

MODEL = build("logistic", (1, 1, 3), 2)
SIZE = MODEL.size  # 8
FILE: Layer = {"privacy": {"batch": 8, "clip": 1.0, "noise_multiplier": 1.0}}


def run_file(
    name: str = "fedasync", section: str = "", updates: int = 1000, count: int = 4
) -> RunFile:
    return run_files.run_file(
        FILE,
        {"algorithm": section},
        run={"updates": updates},
        algorithm={"name": name},
        edges={"count": count},
    )


def server(name: str = "fedasync", section: str = "", **more: Any) -> ServerRole:
    return registry.server(run_file(name, section, **more).define(), MODEL)


def hello(edge: str) -> Hello:
    return Hello(edge, 2.0, 1e-5, "discrete_gaussian", 1.0, 0.1, 100.0, ())


def update(edge: str, base: int, value: float | Tensor) -> Update:
    vector = value if isinstance(value, Tensor) else torch.full((SIZE,), value)
    return Update(edge, base, vector, 1.0, (Spend(0.1, 1.0, 1),))


def joined(role: ServerRole, *edges: str) -> ServerRole:
    for edge in edges:
        role.on_message(hello(edge))
    return role


def addressees(outgoing: list[Outgoing]) -> list[str]:
    return [out.to for out in outgoing]
