"""The observer of a run without a server: it folds peers' reports into one model to show to people.

It also keeps one counter and one record of spending. No peer reads anything from it or waits for
it. The model is the paper's θ_t = (1/K) Σ_k w_k (Theorem 1 of A(DP)²SGD), of the models as last
reported. Each is post-processing of what its peer's ledger has paid for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.gossip.gossip_settings import Gossip
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.models.vectors import learnable
from tacit.protocol.messages import Outgoing, Timer, Update

GRACE = 10.0  # seconds without a report, once one peer has reported its last model
QUIET = 2.0  # the same once all have: a neighbour's last exchange may still change a model


class ReportFold(ServerRole):
    """A role in a server's place that folds peers' reports, to show them to people.

    Once a peer has reported the end, the run is over when no report has come for QUIET seconds if
    all peers have reported it, else for GRACE seconds.
    """

    def __init__(self, definition: Definition[Gossip], model: Model) -> None:
        super().__init__(definition, model)
        self.algorithm = definition.algorithm
        self.max_staleness = definition.run.updates
        self.models: dict[str, Tensor] = {}
        self.final: list[str] = []  # peers that have reported their last model
        self.reports = 0

    def screen(self, update: Update) -> str | None:
        """Screen as servers do, but allow a counter ahead of the one here, up to T."""
        if update.base_version > self.horizon:
            return "version"
        if not learnable(update.vector):
            return "norm"
        why = super().screen(update)
        if why == "version":
            return None
        return why

    def answer(self, edge: str) -> list[Outgoing]:
        """Return no task: a peer has its own model."""
        return []

    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """Take in the newest model of one peer, and update θ and the counter."""
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
        """Return the timer that ends the run; every report starts it anew.

        So a peer that is disconnected at the end does not keep the run from ending.
        """
        if not self.final or self.halted:
            return None
        return Timer(self.reports, QUIET if set(self.final) == set(self.edges) else GRACE)

    def on_deadline(self, number: int) -> list[Outgoing]:
        """End the run, as no more reports have come: set the counter to T."""
        self.version = self.horizon
        return []

    def schedule(self) -> dict[str, float]:
        """Return C, η, and the largest distance of a peer's model from their mean."""
        apart = [
            float(torch.linalg.vector_norm(model - self.params)) for model in self.models.values()
        ]
        rate = self.algorithm.learning_rate * self.algorithm.factor(self.version, self.horizon)
        return {"clip": self.clip, "learning_rate": rate, "disagreement": max(apart, default=0.0)}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return every fold's state and each peer's model."""
        tensors, values = super().state()
        tensors |= {f"model/{name}": model for name, model in self.models.items()}
        return tensors, values | {"final": self.final, "reports": self.reports}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        models = {name: tensor for name, tensor in tensors.items() if name.startswith("model/")}
        self.models = {name.removeprefix("model/"): tensor for name, tensor in models.items()}
        self.final = list(values["final"])
        self.reports = values["reports"]
