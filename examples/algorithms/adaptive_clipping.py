"""FedBuff with adaptive clipping: the clip norm follows a quantile of the gradients' norms.

Papers: Andrew et al., "Differentially Private Learning with Adaptive Clipping" (arXiv:1905.03871),
eq. (1) and Algorithm 1; Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation"
(arXiv:2106.06639).

| here           | paper | meaning |
|----------------|-------|---------|
| clip           | C     | bound on one gradient; the noise is scaled to it |
| within         | b     | share of units whose gradient is within C, noisy, from the same release |
| quantile       | γ     | the share that should be within |
| clip_rate      | η_C   | how quickly C follows |
| buffer         | K     | updates that make one version (FedBuff) |
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from tacit.algorithms import (
    AlgorithmServer,
    AlgorithmSettings,
    Field,
    GradientTask,
    Positive,
    ServerAlgorithm,
    Update,
)


class ClippingSettings(AlgorithmSettings):
    """The keys of [algorithm]."""

    searched: ClassVar = {"learning_rate": (0.1, 10.0)}

    learning_rate: Positive = Field(1.0, description="step size, of a gradient divided by C")
    quantile: float = Field(0.5, gt=0, lt=1, description="γ")
    clip_rate: Positive = Field(0.2, description="η_C")
    buffer: int = Field(5, gt=0, description="K")

    def computes(self) -> GradientTask:
        """Return one gradient, with the count of units within C."""
        return GradientTask(counts_clipped=True)

    def uploads(self, workers: int) -> int:
        """Return K."""
        return self.buffer


class ClippingServer(AlgorithmServer[ClippingSettings]):
    """Collects K updates, then makes a version and the next C of them."""

    saved = ("total", "shares")

    def begin(self) -> None:
        """Begin with an empty buffer."""
        self.total = torch.zeros_like(self.params)
        self.shares: list[float] = []

    def step(self, update: Update, tau: int) -> None:
        """Add a gradient in units of its C; the K-th makes a version, and C·exp(-η_C(b - γ))."""
        a = self.settings
        self.total = self.total + update.vector / self.clip_at(update.base_version)
        self.shares = [*self.shares, self.within]
        if len(self.shares) == a.buffer:
            self.move(self.params - a.learning_rate / a.buffer * self.total)
            within = math.fsum(self.shares) / a.buffer
            self.clip *= math.exp(-a.clip_rate * (min(max(within, 0.0), 1.0) - a.quantile))
            self.begin()


class AdaptiveClipping(ServerAlgorithm):
    """FedBuff with adaptive clipping, over edges that push one gradient and a count."""

    settings = ClippingSettings
    role = ClippingServer
