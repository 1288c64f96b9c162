"""DP-PASGD: differentially private periodic averaging SGD. DP-SGD is the same with τ = 1.

Paper: "DP-PASGD" (arXiv:2003.12705), section 4, eqs (5) to (7). Its design problem (τ*, K*, σ*)
is solved by `tacit plan dp-pasgd` (design.py).

| here             | paper     | meaning |
| ---------------- | --------- | --- |
| params           | θ         | model, float32 (d,) |
| edges            | M         | devices |
| tau              | τ         | local iterations between two averages |
| version          | k/τ       | averages made; the run's K is version·τ |
| learning_rate    | η         | step size of a local iteration |
| batch            | X_m       | expected batch size, and the denominator |
| clip             | G         | bound on one example's gradient: clipped to it, not assumed |
| noise_multiplier | X_m·σ_m/G | the paper's σ_m on the mean gradient |

Differs from the paper (why: docs/algorithms.md): Poisson batches, accounted for by PLD. Every local
iteration is charged, and the average is post-processing. Devices that miss a round's deadline are
left out of that average. Nothing is charged that was not computed, and the ε of the others does not
change. The average is biased towards the data of the quick devices, and a device that is late
throughout has no weight at all.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from tacit.algorithms.base.algorithm import ServerAlgorithm
from tacit.algorithms.base.rounds import RoundServer
from tacit.algorithms.dp_pasgd.pasgd_settings import DpPasgd
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.protocol.messages import Update
from tacit.robust.law import Law


class DpPasgdServer(RoundServer):
    """The cloud server: the second case of eqs (6) and (7), when τ divides k."""

    def __init__(self, definition: Definition[DpPasgd], model: Model) -> None:
        a = definition.algorithm
        super().__init__(
            definition,
            model,
            clients=definition.edges.count,
            quorum=a.quorum,
            deadline_s=a.deadline_s,
        )
        self.algorithm = a
        self.task = a.task()

    def combine(self, answers: list[Tensor]) -> Tensor:
        """Return θ^k = 1/M·Σ_m (θ_m^{k-1} - η·(g(θ_m^{k-1}) + b_m)).

        Over the devices that answered in time.
        """
        return self.average(answers)

    def law(self, update: Update) -> Law:
        """Return the law of τ local steps."""
        return self.task.law(self.laws, update, self.clip, self.horizon)

    def schedule(self) -> dict[str, float]:
        """Return C, η, τ, and how far the round has come."""
        a = self.algorithm
        rate = a.learning_rate * a.factor(self.version, self.horizon)
        return {"clip": self.clip, "learning_rate": rate, "tau": a.tau} | self.progress()


class DpPasgdAlgorithm(ServerAlgorithm):
    """DP-PASGD."""

    settings: ClassVar = DpPasgd
    role: ClassVar = DpPasgdServer
