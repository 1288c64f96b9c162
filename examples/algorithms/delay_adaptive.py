"""Delay-adaptive asynchronous SGD: the staler a gradient, the smaller its step.

Paper: Koloskova, Stich, Jaggi, "Sharper Convergence Guarantees for Asynchronous SGD for
Distributed and Federated Learning" (arXiv:2206.08307), Algorithm 1 with the delay-adaptive step
sizes of its eq. (7), where η is divided for gradients that are later than most.

| here          | paper | meaning |
|---------------|-------|---------|
| update.vector | g     | noisy mean gradient of one edge |
| tau           | τ_t   | versions made since the model it was computed on: measured |
| concurrency   | τ_C   | edges at work at once; a delay up to it is the usual one |
| learning_rate | η     | step size of a gradient that is not late |
"""

from __future__ import annotations

from typing import ClassVar

from tacit.algorithms import (
    RATES,
    AlgorithmServer,
    AlgorithmSettings,
    Field,
    Positive,
    ServerAlgorithm,
    Update,
)


class DelaySettings(AlgorithmSettings):
    """The keys of [algorithm]."""

    searched: ClassVar = {"learning_rate": RATES}

    learning_rate: Positive = Field(1.0, description="η")
    concurrency: int = Field(5, gt=0, description="τ_C, edges at work at once")


class DelayServer(AlgorithmServer[DelaySettings]):
    """x ← x - η·min(1, τ_C/τ_t)·g."""

    saved = ("rate",)

    def begin(self) -> None:
        """Begin with η."""
        self.rate = self.settings.learning_rate

    def step(self, update: Update, tau: int) -> None:
        """Take one step, whose size is a function of the delay alone."""
        late = max(tau, self.settings.concurrency)
        self.rate = self.settings.learning_rate * self.settings.concurrency / late
        self.move(self.params - self.rate * update.vector)

    def learning_rate(self) -> float:
        """Return the size of the latest step."""
        return self.rate


class DelayAdaptive(ServerAlgorithm):
    """Delay-adaptive SGD over edges that push one gradient for each model."""

    settings = DelaySettings
    role = DelayServer
