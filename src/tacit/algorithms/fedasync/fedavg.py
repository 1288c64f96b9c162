"""FedAvg's server (McMahan et al., arXiv:1602.05629): synchronous rounds, averaged."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from tacit.algorithms.base.algorithm import ServerAlgorithm
from tacit.algorithms.base.rounds import RoundServer
from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.protocol.messages import Update
from tacit.robust.law import Law


class AveragingServer(RoundServer):
    """FedAvg: k workers a round, chosen at random; the new model is the average of theirs."""

    def __init__(self, definition: Definition[FedAsync], model: Model) -> None:
        a = definition.algorithm
        clients = definition.traits.uploads
        super().__init__(
            definition, model, clients=clients, quorum=a.quorum, deadline_s=a.deadline_s
        )
        self.algorithm = a
        self.task = a.task(definition.privacy.noise_at)
        self.deltas = definition.privacy.noise_at == "server"

    def combine(self, answers: list[Tensor]) -> Tensor:
        """Return x_{t+1} = 1/k·Σ x_i, or x_t + 1/k·Σ (x_i - x_t) of distances noised here."""
        mean = self.average(answers)
        if self.deltas:
            return self.params + mean
        return mean

    def law(self, update: Update) -> Law:
        """Return the law of H local steps, as FedAsync's."""
        return self.task.law(self.laws, update, self.clip, self.horizon)

    def schedule(self) -> dict[str, float]:
        """Return C, γ, and how far the round has come."""
        rate = self.algorithm.learning_rate * self.algorithm.factor(self.version, self.horizon)
        return {"clip": self.clip, "learning_rate": rate} | self.progress()


class FedAvgAlgorithm(ServerAlgorithm):
    """FedAvg."""

    settings: ClassVar = FedAsync
    role: ClassVar = AveragingServer
