"""What peers without a server show to people: their reports, folded into one model, one counter and
one ledger.

No peer takes anything from here, and none waits for it. The model is the paper's θ_t = (1/K) Σ_k
w_k (Theorem 1 of A(DP)²SGD), of the models as last reported; each is post-processing of what its
peer's ledger has paid for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.base.server import ServerRole
from tacit.config.algorithms import Gossip
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.models.vectors import learnable
from tacit.protocol.messages import Outgoing, Timer, Update

GRACE = 10.0  # seconds that peers which have not said their last model are waited for, once one has
QUIET = (
    2.0  # the same when all have: a neighbour's last exchange may still change what one has said
)


class ReportFold(ServerRole):
    """The server of a run without one: it folds what peers report, for people.

    The run is over QUIET seconds after the last report where all peers have said the end, else
    GRACE seconds.
    """

    def __init__(self, definition: Definition[Gossip], model: Model) -> None:
        super().__init__(definition, model)
        self.algorithm, self.max_staleness = definition.algorithm, definition.horizon
        self.models: dict[str, Tensor] = {}
        self.final: list[str] = []  # who has said its last model
        self.reports = 0

    def screen(self, update: Update) -> str | None:
        """As the servers' do.

        But a peer may know more of the counter than was reported here (T at most).
        """
        if update.base_version > self.horizon:
            return "version"
        if not learnable(update.vector):
            return "norm"
        why = super().screen(update)
        return None if why == "version" else why

    def answer(self, edge: str) -> list[Outgoing]:
        """Nothing: a peer has its own model."""
        return []

    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """The newest model of one peer; θ and the counter follow."""
        self.edges[update.edge] = replace(self.edges[update.edge], updates=update.steps)
        self.models[update.edge] = update.vector
        self.params = (
            torch.stack([self.models[name] for name in sorted(self.models)])
            .to(torch.float64)
            .mean(0)
            .float()
        )
        if update.base_version >= self.horizon and update.edge not in self.final:
            self.final.append(update.edge)
        self.version = max(self.version, min(update.base_version, self.horizon - 1))
        self.reports += 1
        return []

    def timer(self) -> Timer | None:
        """Every report begins it anew.

        A peer that is away at the end does not keep the run from ending.
        """
        if not self.final or self.halted:
            return None
        return Timer(self.reports, QUIET if set(self.final) == set(self.edges) else GRACE)

    def on_deadline(self, number: int) -> list[Outgoing]:
        """Nothing more has come: the counter says T, and the run is over."""
        self.version = self.horizon
        return []

    def schedule(self) -> dict[str, float]:
        """C, η, and how far apart the peers' models are: the largest distance from their mean."""
        apart = [
            float(torch.linalg.vector_norm(model - self.params)) for model in self.models.values()
        ]
        rate = self.algorithm.learning_rate * self.algorithm.factor(self.version, self.horizon)
        return {"clip": self.clip, "learning_rate": rate, "disagreement": max(apart, default=0.0)}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """As every fold's, with each peer's model."""
        tensors, values = super().state()
        tensors |= {f"model/{name}": model for name, model in self.models.items()}
        return tensors, values | {"final": self.final, "reports": self.reports}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        models = {name: tensor for name, tensor in tensors.items() if name.startswith("model/")}
        self.models = {name.removeprefix("model/"): tensor for name, tensor in models.items()}
        self.final, self.reports = list(values["final"]), values["reports"]
