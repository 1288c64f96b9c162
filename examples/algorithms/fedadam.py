"""FedAdam: the server takes Adam's steps along the noisy gradients of its edges.

Paper: Reddi et al., "Adaptive Federated Optimization" (arXiv:2003.00295), Algorithm 2. Here each
update is applied when it comes, so a version has one update.

| here          | paper | meaning |
|---------------|-------|---------|
| update.vector | Δ_t   | noisy mean gradient of one edge; the paper's is its negative |
| first         | m_t   | mean of the gradients |
| second        | v_t   | mean of their squares |
| learning_rate | η     | step size |
| adaptivity    | τ     | what keeps the step finite |
"""

from __future__ import annotations

from typing import ClassVar

import torch

from tacit.algorithms import (
    AlgorithmServer,
    AlgorithmSettings,
    Field,
    Positive,
    ServerAlgorithm,
    Update,
)


class AdamSettings(AlgorithmSettings):
    """The keys of [algorithm]."""

    searched: ClassVar = {"learning_rate": (1e-3, 1.0)}

    learning_rate: Positive = Field(0.03, description="η")
    first_decay: float = Field(0.9, ge=0, lt=1, description="β_1")
    second_decay: float = Field(0.99, ge=0, lt=1, description="β_2")
    adaptivity: Positive = Field(1e-3, description="τ")


class AdamServer(AlgorithmServer[AdamSettings]):
    """Algorithm 2, lines 11 to 14."""

    saved = ("first", "second")

    def begin(self) -> None:
        """Begin with means of 0."""
        self.first = torch.zeros_like(self.params)
        self.second = torch.zeros_like(self.params)

    def step(self, update: Update, tau: int) -> None:
        """Take one step of Adam, without correction of the first means, as in the paper."""
        a = self.settings
        gradient = update.vector
        self.first = a.first_decay * self.first + (1 - a.first_decay) * gradient
        self.second = a.second_decay * self.second + (1 - a.second_decay) * gradient**2
        direction = self.first / (self.second.sqrt() + a.adaptivity)
        self.move(self.params - a.learning_rate * direction)


class FedAdam(ServerAlgorithm):
    """FedAdam over edges that push one gradient for each model."""

    settings = AdamSettings
    role = AdamServer
