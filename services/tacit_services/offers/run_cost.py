"""What a run may cost the data of a member: ε before it, at most by it, and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.config.definition import Definition
from tacit.privacy.accounting import History, Spend, epsilon_pld


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a run may cost, at the run's δ.

    private: whether there is a guarantee; without one, nothing else counts. releases: the most that
    the run's budget pays for. epsilon: of all of them. budget: the run's ε, which ends them.
    before: joint ε of all earlier releases of this data. after: the same with this run's. Both are
    by PLD, which holds for parameters that are fixed in advance.
    """

    private: bool
    delta: float
    releases: int
    epsilon: float
    budget: float
    before: float
    after: float


def run_cost(definition: Definition[Any], number: int, history: History) -> RunCost:
    """Return what a run may cost at most at worker `number`, whose data has spent `history`."""
    plan = definition.plans.plan(number)
    before = epsilon_pld(history, plan.delta) if history else 0.0
    releases = plan.pushes_left(())
    if releases is None:
        return RunCost(False, plan.delta, 0, 0.0, plan.epsilon, before, before)
    if not plan.passes:
        traits = definition.traits
        releases = min(releases, definition.run.updates * traits.uploads * traits.steps)
    spend = Spend(plan.charged_rate, plan.noise_multiplier, releases, plan.mechanism)
    return RunCost(
        private=True,
        delta=plan.delta,
        releases=releases,
        epsilon=epsilon_pld((spend,), plan.delta),
        budget=plan.epsilon,
        before=before,
        after=epsilon_pld((*history, spend), plan.delta),
    )
