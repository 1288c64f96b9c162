"""What a run may cost the data of a member: ε before it, at most by it, and after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

from tacit.privacy.accounting import History, Lifetime, epsilon_pld, merged
from tacit.privacy.accounting.filters import RenyiFilter
from tacit.privacy.accounting.history import for_all_purposes
from tacit_services.member.run_promise import RunPromise


@dataclass(frozen=True, slots=True)
class LifetimeShare:
    """The part of a data's lifetime budget that is spent, as its Rényi filter counts it.

    epsilon, delta: the owner's bound. Parts of it, 1 being all: `before` is spent, `committed` is
    spent or promised to other runs, and `requested` has all that this run may take, too. The last
    two may be more than there is. releases: how many of the run's are paid for, if it comes first.
    """

    epsilon: float
    delta: float
    before: float
    committed: float
    requested: float
    releases: int

    @property
    def after(self) -> float:
        """The part after this run, at most: the ledger ends every run at the bound."""
        return min(1.0, self.requested)

    @property
    def stops(self) -> bool:
        """Whether the bound may end a run before the run's own budget does."""
        return self.requested > 1.0


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a run may cost, at the run's δ.

    private: whether there is a guarantee; without one, nothing else counts. releases: the most that
    the run's budget and the owner's bound pay for. epsilon: of all of them. budget: the run's ε,
    which ends them. before: joint ε of all releases of this data up to now. committed: the same
    with what is promised to other runs. after: the same with this run's. They are
    by PLD, which holds for parameters that are fixed in advance. lifetime: None where the owner has
    set no bound. promised: what other runs that were accepted may still spend, by run. unseen:
    whether looks are to come and the owner's bound pays for none of them.
    """

    private: bool
    delta: float = 0.0
    releases: int = 0
    epsilon: float = 0.0
    budget: float = 0.0
    before: float = 0.0
    committed: float = 0.0
    after: float = 0.0
    lifetime: LifetimeShare | None = None
    promised: tuple[tuple[str, float], ...] = ()
    unseen: bool = False

    @property
    def unpaid(self) -> bool:
        """Whether there is a guarantee, and the run can pay for none of its updates, or looks."""
        return self.private and (self.releases == 0 or self.unseen)


def run_cost(
    promise: RunPromise | None,
    history: History,
    lifetime: Lifetime | None = None,
    promised: Mapping[str, History] | None = None,
    come: History = (),
) -> RunCost:
    """Return what a run may cost at most, whose data has spent `history`.

    promise: of the run; None: it gives no guarantee. lifetime: the owner's bound on that data, at
    the order of its ledger. promised: what other runs may still spend, by run. come: what this run
    has released already, which is in `history`.
    """
    if promise is None:
        return RunCost(False)
    others = promised or {}
    remainder, looks = promise.left(come), promise.looks_left(come)
    share, unseen = None, False
    if lifetime is not None:
        paid = min(remainder.count, lifetime.left(history, promise.some(1)))
        share = lifetime_share(lifetime, history, others, (*looks, remainder), paid)
        remainder = promise.some(paid)
        to_come, looks = looks, within(lifetime, history, looks)
        unseen = bool(to_come) and not looks
        others = {run: within(lifetime, history, due) for run, due in others.items()}
    each = merged((*come, *looks, remainder))
    claimed = merged((*history, *chain.from_iterable(others.values())))
    return RunCost(
        private=True,
        delta=promise.delta,
        releases=sum(spend.count for spend in each if spend.purpose != "judging"),
        epsilon=_epsilon(each, promise.delta),
        budget=promise.budget,
        before=_epsilon(history, promise.delta),
        committed=_epsilon(claimed, promise.delta),
        after=_epsilon((*claimed, *looks, remainder), promise.delta),
        lifetime=share,
        promised=tuple((run, _epsilon(due, promise.delta)) for run, due in others.items()),
        unseen=unseen,
    )


def lifetime_share(
    lifetime: Lifetime, history: History, others: Mapping[str, History], due: History, paid: int = 0
) -> LifetimeShare:
    """Return the parts of a bound: spent, promised to `others`, and requested by a run.

    due: what the run may still release. paid: how many of its updates the bound pays for.
    """
    claimed = (*history, *chain.from_iterable(others.values()))
    before, committed, requested = (
        _part(lifetime, spends) for spends in (history, claimed, (*claimed, *due))
    )
    return LifetimeShare(lifetime.epsilon, lifetime.delta, before, committed, requested, paid)


def account_share(
    lifetime: Lifetime, history: History, others: Mapping[str, History]
) -> LifetimeShare:
    """Return the parts of a bound that are spent, and promised to `others`, with no run besides."""
    claimed = (*history, *chain.from_iterable(others.values()))
    before, committed = (_part(lifetime, spends) for spends in (history, claimed))
    return LifetimeShare(lifetime.epsilon, lifetime.delta, before, committed, committed, 0)


def within(lifetime: Lifetime, history: History, due: History) -> History:
    """Return the part of what a run may still release that its data's bound pays for by itself."""
    paid: History = ()
    for spend in due:
        most = lifetime.left((*history, *paid), replace(spend, count=1))
        if count := min(spend.count, most):
            paid = (*paid, replace(spend, count=count))
    return paid


def _part(lifetime: Lifetime, history: History) -> float:
    counted = RenyiFilter(lifetime.epsilon, lifetime.delta, lifetime.order, history)
    return counted.spent / counted.budget


def _epsilon(history: History, delta: float) -> float:
    spent = for_all_purposes(history)
    return epsilon_pld(spent, delta) if spent else 0.0
