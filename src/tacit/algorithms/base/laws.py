"""The law that each edge's updates must keep, from the privacy plan of each."""

from __future__ import annotations

from tacit.config.plans import Plans
from tacit.privacy.release import Plan
from tacit.robust.law import Law


class Laws:
    """Laws by the edge's name, for its own noise and batches as large as `guard.rows` allows."""

    def __init__(self, plans: Plans, rows: float) -> None:
        """rows: `guard.rows`."""
        self._plans = plans
        self._rows = rows
        self._plan_of: dict[str, Plan] = {}

    def gradient(self, edge: str, clip: float) -> Law:
        """Return the law of one noisy mean gradient, (clipped sum + zC·noise)/L."""
        plan = self._plan(edge)
        pull = clip / plan.batch
        return Law(pull, self._rows * plan.batch, plan.noise_multiplier * pull)

    def steps(
        self, edge: str, clip: float, rate: float, *, most: int, fewest: int, proximal: float = 0.0
    ) -> Law:
        """Return the law of `most` local steps of size `rate`, or of `fewest` at the budget's end.

        Each step's proximal part multiplies what the earlier ones have added by 1 - γρ. The law
        needs |1 - γρ| <= 1; the run file refuses γρ > 2 with guard.sums.
        """
        gradient_law = self.gradient(edge, clip)
        keeps = (1 - rate * proximal) ** 2
        least = sum(keeps**step for step in range(fewest)) / most
        return Law(
            rate * gradient_law.pull,
            most * gradient_law.rows,
            rate * gradient_law.deviation * most**0.5,
            least,
        )

    def _plan(self, edge: str) -> Plan:
        if edge not in self._plan_of:
            self._plan_of[edge] = self._plans.named(edge)
        return self._plan_of[edge]
