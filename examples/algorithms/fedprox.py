"""FedProx: rounds of local steps that are pulled back to the round's model.

Paper: Li et al., "Federated Optimization in Heterogeneous Networks" (arXiv:1812.06127),
Algorithm 2. Clients take H steps of DP-SGD on f(x) + μ/2·||x - x_t||²; the server takes the mean.

| here          | paper | meaning |
|---------------|-------|---------|
| clients       | K     | edges asked in a round |
| steps         | -     | H, local steps, each of them a release |
| mu            | μ     | weight of the proximal term |
| learning_rate | η     | step size of a local step |
| answers       | w_k^{t+1} - w^t | distances that the clients' steps led |
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from tacit.algorithms import (
    AlgorithmRounds,
    Field,
    LocalStepsTask,
    Positive,
    RoundSettings,
    ServerAlgorithm,
)


class ProxSettings(RoundSettings):
    """The keys of [algorithm]; `clients`, `quorum` and `deadline_s` are inherited."""

    searched: ClassVar = {"learning_rate": (0.01, 3.0), "mu": (0.001, 1.0)}

    learning_rate: Positive = Field(0.1, description="η")
    steps: int = Field(5, gt=0, description="H")
    mu: float = Field(0.1, ge=0, description="μ")

    def computes(self) -> LocalStepsTask:
        """Return H local steps with the proximal pull."""
        return LocalStepsTask(
            steps_min=self.steps, learning_rate=self.learning_rate, proximal=self.mu
        )


class ProxServer(AlgorithmRounds[ProxSettings]):
    """Adds the mean of a round's distances."""

    def combine(self, answers: list[Tensor]) -> Tensor:
        """Return w^{t+1} = w^t + 1/K·Σ (w_k^{t+1} - w^t)."""
        return self.params + self.average(answers)


class FedProx(ServerAlgorithm):
    """FedProx in synchronous rounds."""

    settings = ProxSettings
    role = ProxServer
