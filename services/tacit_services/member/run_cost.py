"""What a run may cost the data of a member: ε before it, at most by it, and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.config.definition import Definition
from tacit.privacy.accounting import History, Lifetime, Spend, epsilon_pld
from tacit.privacy.accounting.filters import RenyiFilter
from tacit_services.member.run_promise import RunPromise


@dataclass(frozen=True, slots=True)
class LifetimeShare:
    """The part of a data's lifetime budget that is spent, as its Rényi filter counts it.

    epsilon, delta: the owner's bound. before, after: parts of it, 1 being all. releases: how many
    of the run's it pays for.
    """

    epsilon: float
    delta: float
    before: float
    after: float
    releases: int


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a run may cost, at the run's δ.

    private: whether there is a guarantee; without one, nothing else counts. releases: the most that
    the run's budget pays for. epsilon: of all of them. budget: the run's ε, which ends them.
    before: joint ε of all earlier releases of this data. after: the same with this run's. Both are
    by PLD, which holds for parameters that are fixed in advance. lifetime: None where the owner has
    set no bound. promised: what other runs that were accepted may still spend, by run, which is
    in both figures of after. promise: of this run, or None.
    """

    private: bool
    delta: float
    releases: int
    epsilon: float
    budget: float
    before: float
    after: float
    lifetime: LifetimeShare | None = None
    promised: tuple[tuple[str, float], ...] = ()
    promise: RunPromise | None = None


def run_cost(
    definition: Definition[Any],
    number: int,
    history: History,
    lifetime: Lifetime | None = None,
    promised: Mapping[str, Spend] | None = None,
) -> RunCost:
    """Return what a run may cost at most at worker `number`, whose data has spent `history`.

    lifetime: the owner's bound on that data, at the order of its ledger. promised: what other runs
    may still spend, by run.
    """
    plan = definition.plans.plan(number)
    before = epsilon_pld(history, plan.delta) if history else 0.0
    releases = plan.pushes_left(())
    if releases is None:
        return RunCost(False, plan.delta, 0, 0.0, plan.epsilon, before, before)
    if not plan.passes:
        traits = definition.traits
        releases = min(releases, definition.run.updates * traits.uploads * traits.steps)
    others = promised or {}
    each = Spend(plan.charged_rate, plan.noise_multiplier, 1, plan.mechanism)
    if lifetime is None:
        share = None
    else:
        releases = min(releases, lifetime.left(history, each))
        share = _share(lifetime, history, [*others.values(), replace(each, count=releases)])
    spend = replace(each, count=releases)
    return RunCost(
        private=True,
        delta=plan.delta,
        releases=releases,
        epsilon=epsilon_pld((spend,), plan.delta),
        budget=plan.epsilon,
        before=before,
        after=epsilon_pld((*history, *others.values(), spend), plan.delta),
        lifetime=share,
        promised=tuple((run, epsilon_pld((left,), plan.delta)) for run, left in others.items()),
        promise=RunPromise(
            each.sampling_rate, each.noise_multiplier, each.mechanism, releases, plan.epsilon,
            plan.delta,
        ),
    )  # fmt: skip


def _share(lifetime: Lifetime, history: History, spends: Sequence[Spend]) -> LifetimeShare:
    """Return the share with all of `spends`, the last of which are the run's own."""
    bound = lifetime.epsilon, lifetime.delta
    before = RenyiFilter(*bound, lifetime.order, history)
    after = RenyiFilter(*bound, lifetime.order, (*history, *spends))
    # What is promised may be more than there is: the ledger ends it at the bound.
    parts = before.spent / before.budget, min(1.0, after.spent / after.budget)
    return LifetimeShare(*bound, *parts, spends[-1].count)
