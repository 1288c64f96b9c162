"""The two steps that the bench compares: a plain mean gradient, and an edge's work for a push."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.datasets import Dataset
from tacit.models import Model, build
from tacit.models.vectors import mean_gradient
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.release import Mechanism, Plan, Releaser
from tacit.protocol.messages import GlobalModel, Push
from tacit_lab.bench.own_networks import OWN_NETWORKS

# rows dealt to an edge, as MNIST's among ten
ROWS = 6_000
CLIP = 1.0
BATCHES = (48, 256)
MECHANISMS: tuple[Mechanism, ...] = ("discrete_gaussian", "gaussian")
NETWORKS = {  # as in experiments/ and in bench/cost.py
    "cnn": build("cnn", (1, 28, 28), 10, channels=(10, 20), hidden=(50,)),
    "resnet": build("resnet", (3, 32, 32), 10, width=8),
    "mobilenet": build("mobilenet", (3, 32, 32), 10, width=16),
    "lstm": build("lstm", (32,), 500, embedding=32, hidden=(32,)),
    "logistic": build("logistic", (1, 28, 28), 10),
}
_MEMORY = Path("/dev/shm")
Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Way:
    """The way of the private step: rows alone or in slots, with a ledger on disk or not."""

    alone: bool = True
    disk: bool = False

    @property
    def folder(self) -> Path | None:
        """Where ledgers are; None: where temporary files are."""
        if self.disk or not _MEMORY.is_dir():
            return None
        return _MEMORY


def network_of(name: str) -> Model:
    """Return a network of the bench: one of tacit's, or one as a user writes it."""
    if name in NETWORKS:
        return NETWORKS[name]
    return OWN_NETWORKS[name]()


def rows_of(model: Model, rows: int = ROWS) -> Dataset:
    """Return random rows: no step asks what stands in them."""
    x, y = model.random_batch(rows, torch.Generator().manual_seed(1))
    return Dataset(x, y, model.classes, "random")


def plain_step(model: Model, data: Dataset, batch: int, params: Tensor) -> Step:
    def step() -> Tensor:
        index = torch.randint(len(data), (batch,))
        return mean_gradient(model, params, data.x[index], data.y[index])

    return step


def bench_edge(
    model: Model, data: Dataset, batch: int, mechanism: Mechanism, path: Path, *, alone: bool
) -> GradientEdge:
    """Return an edge with a real ledger and a secret key.

    It has as many slots as rows that are dealt in public give it.
    """
    rate = batch / len(data)
    plan = Plan(mechanism, rate, batch, 1.0, CLIP, CLIP, 1e6, 1e-5, rows_max=len(data))
    random = Random()
    rows = private_sum(data, model, plan, random, rows_alone=alone)
    return GradientEdge("edge-0", model, Releaser(plan, Ledger(path, data.name), random), rows)


def push_step(edge: GradientEdge, params: Tensor) -> Step:
    def step() -> None:
        (outgoing,) = edge.on_message(GlobalModel(0, params, CLIP))
        assert isinstance(outgoing.message, Push), outgoing.message

    return step
