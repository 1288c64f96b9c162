"""A fold that writes into an update's own memory: the same bits, and no other vector is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.algorithms import registry
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.protocol.messages import Hello, Update
from tests.golden.harness import sha256
from tests.helpers.run_files import run_file

LOCAL = {"name": "fedasync", "learning_rate": 0.01, "steps_min": 2, "steps_max": 2}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "mapa": {"name": "mapa", "smoothness": 1.0, "deviation": 1.0},
    "fedasync": LOCAL,
    "fedbuff": LOCAL | {"name": "fedbuff", "buffer": 3},
    "fedavg": LOCAL | {"name": "fedavg"},
    "dp-pasgd": {"name": "dp-pasgd", "tau": 2, "learning_rate": 0.01},
}
GUARDS: dict[str, dict[str, Any]] = {"unguarded": {}, "guarded": {"sums": True}}


def run(name: str, guard: str) -> RunFile:
    return run_file(
        run={"updates": 100},
        edges={"count": 3},
        privacy={"noise_multiplier": 1.0, "clip": 1.0, "batch": 32, "epsilon": 100.0},
        algorithm=ALGORITHMS[name],
        guard=GUARDS[guard],
    )


def folded(role: ServerRole, *, consumable: bool) -> list[tuple[Tensor, Tensor]]:
    """Fold four updates of each of three edges.

    Return every model, each with its copy from the time when it was current.
    """
    random, models = torch.Generator().manual_seed(1), []
    for edge in "abc":
        role.on_message(Hello(edge, 100.0, 1e-5, "discrete_gaussian", 1.0, 0.1, 100.0, ()))
    for _ in range(4):
        for edge in "abc":
            models.append((role.params, role.params.clone()))
            sent = Update(edge, role.version, role.params, role.clip, ())
            noise = role.law(sent).deviation * torch.randn(role.params.shape, generator=random)
            sent = replace(sent, vector=role.base(sent) + noise, consumable=consumable)
            role.on_message(sent)
    return models


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_memory_that_nobody_else_reads_changes_no_bit(name: str, guard: str) -> None:
    definition = run(name, guard).define()
    model = definition.build_model()
    untouched, consumed = (registry.server(definition, model) for _ in range(2))
    folded(untouched, consumable=False)
    models = folded(consumed, consumable=True)
    assert consumed.version == untouched.version > 0
    assert sha256(consumed) == sha256(untouched)
    # Whoever sends, stores or evaluates an earlier model meanwhile still has it.
    assert all(torch.equal(now, then) for now, then in models)


@pytest.mark.parametrize("name", ["mapa", "fedasync"])
def test_a_large_model_takes_no_memory_beside_its_update(name: str) -> None:
    definition = run(name, "unguarded").define()
    role = registry.server(definition, definition.build_model())
    folded(role, consumable=False)
    update = Update("a", role.version, role.params + 1.0, role.clip, (), consumable=True)
    role.on_message(update)
    assert role.params.data_ptr() == update.vector.data_ptr()
