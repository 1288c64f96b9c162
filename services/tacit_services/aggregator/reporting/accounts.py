"""The ε of what each edge has released, for all who ask during a run.

A composition takes 20 to 50 ms, which training would miss at every status of a thousand edges. So ε
is that of exactly what was released where it is known or there is time to compose it, and else an
upper bound (`bounds.ahead`); each number says which it is. What has not changed is not looked at
again. With many edges nobody who asks waits for the exact number: a thread composes it, and the
next bound before an edge comes to it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

from tacit.algorithms.base.records import EdgeRecord
from tacit.privacy.accounting import History, epsilon_pld
from tacit.privacy.report import EdgePrivacy, Promise
from tacit_services.aggregator.reporting.bounds import ROUGHER, ahead

FEW = 100  # up to this many edges a request waits for exact numbers
SHARE, SAVED = 0.02, 0.5  # part of the time for compositions; seconds saved up
KEPT = 4096  # histories that are known to have been composed


@dataclass(frozen=True, slots=True)
class Account:
    """The spending of one edge. bound: its ε is an upper bound."""

    record: EdgeRecord
    spent: EdgePrivacy
    bound: bool


@dataclass(frozen=True, slots=True)
class Total:
    """ε of the run; `bound`: it is an upper bound.

    share: the largest share of its budget that any edge has spent, at most. slowest, releases: the
    edge that has released least, if any, and how often.
    """

    epsilon: float
    bound: bool
    share: float
    slowest: str | None
    releases: int


@dataclass(frozen=True, slots=True, eq=False)
class _Rough:
    """A history, what it is rounded up to, how many releases it has, and ε of the latter, as a
    share of the budget too.
    """

    history: History
    more: History
    releases: int
    epsilon: float
    share: float


class Accounts:
    """The spending of one run's edges; for any thread."""

    def __init__(self, promise: Promise, clock: Callable[[], float] = time.monotonic) -> None:
        self._promise, self._clock = promise, clock
        self._exact: set[History] = set()
        self._rough: dict[str, tuple[History, _Rough]] = {}  # as it was looked at last
        self._roughly = lru_cache(KEPT)(self._rounded)
        self._budget = lru_cache(None)(promise.budget)
        self._ahead_of_time = ThreadPoolExecutor(1, "accounts")
        self._composing: Future[None] | None = None
        self._few = True
        self._kept: dict[str, Account] = {}
        self._saved, self._looked = SAVED, clock()
        self.busy = threading.Lock()  # one composition at a time
        self.final = False  # once the run is over there is time for every ε

    def total(self, records: Mapping[str, EdgeRecord], *, steady: bool = False) -> Total:
        """ε of exactly these `records` together: never less than they have released.

        While another thread is at it, this one waits: what was last found is of fewer releases than
        the counts that it would be shown beside. steady: it depends on `records` alone, and not on
        the time that there is.
        """
        with self.busy:
            self._few = len(records) <= FEW
            return self._together(records, steady and not self.final)

    def of(self, records: Mapping[str, EdgeRecord]) -> dict[str, Account]:
        """The account of each of `records`.

        While another thread is at it, those that were last found will do.
        """
        kept = self._kept
        if not self.final and self.busy.locked() and records.keys() <= kept.keys():
            return {name: kept[name] for name in records}
        with self.busy:
            found = {name: self._account(name, record) for name, record in records.items()}
            self._kept |= found
            return found

    # -- one edge ----------------------------------------------------------------------------------

    def _account(self, name: str, record: EdgeRecord) -> Account:
        kept, history = self._kept.get(name), record.spent
        known = kept is not None and kept.record is record
        if kept is not None and known and (not kept.bound or not self._may_compose(history)):
            return kept
        exact = self._may_compose(history)
        more = history if exact else self._ahead(history, self._budget(name))
        spent = self._promise.spent(name, history, record.charged, more)
        return Account(record, spent, more != history)

    def _ahead(self, history: History, budget: float) -> History:
        """A little more, of which there are few; the history itself where that is too much."""
        for bits in ROUGHER:
            more = ahead(history, bits)
            if self._epsilon(more) <= budget:
                return more
        return history

    # -- all of them -------------------------------------------------------------------------------

    def _together(self, records: Mapping[str, EdgeRecord], steady: bool) -> Total:
        rough, kept = dict[str, _Rough](), self._rough
        for name, record in records.items():  # a thousand times a status: it calls nothing twice
            known = kept.get(name)
            if known is None or known[0] is not record.spent:
                one = self._roughly(record.spent, self._budget(name))
                known = kept[name] = record.spent, one
            rough[name] = known[1]
        distinct = list(dict.fromkeys(rough.values()))  # many edges share one
        least = min((one.releases for one in distinct), default=0)
        slowest = next((name for name, one in rough.items() if one.releases == least), None)
        if self._promise.composition == "max":
            epsilon, bound = self._largest(distinct, steady)
        else:
            epsilon, bound = self._composed(records, rough, steady)
        return Total(epsilon, bound, max((o.share for o in distinct), default=0.0), slowest, least)

    def _rounded(self, history: History, budget: float) -> _Rough:
        more = self._ahead(history, budget)
        epsilon, releases = self._epsilon(more), sum(row.count for row in history)
        share = epsilon / budget if budget and math.isfinite(budget) else 0.0
        return _Rough(history, more, releases, epsilon, share)

    def _largest(self, rough: Sequence[_Rough], steady: bool) -> tuple[float, bool]:
        """The largest ε, and whether it is an upper bound.

        Only those are composed whose bound is above what was found.
        """
        largest = 0.0
        for one in sorted(rough, key=lambda one: -one.epsilon):
            if not largest and not self._few and not steady:
                self._compose_later(ahead(tuple(replace(r, count=r.count + 1) for r in one.more)))
            if one.epsilon <= largest:
                break
            if one.more != one.history and (steady or not self._may_compose(one.history)):
                return one.epsilon, True
            largest = max(largest, self._epsilon(one.history))
        return largest, False

    def _composed(
        self, records: Mapping[str, EdgeRecord], rough: Mapping[str, _Rough], steady: bool
    ) -> tuple[float, bool]:
        """ε of those who hold the same people, and whether it is an upper bound."""
        exact = not steady and all(self._may_compose(one.history) for one in rough.values())
        spent = [
            self._promise.spent(
                name, one.history, records[name].charged, one.history if exact else one.more
            )
            for name, one in rough.items()
        ]
        bound = not exact and self._promise.composition == "together"
        return self._promise.epsilon(spent), bound and any(
            o.more != o.history for o in rough.values()
        )

    # -- time --------------------------------------------------------------------------------------

    def _epsilon(self, history: History) -> float:
        return epsilon_pld(history, self._promise.delta)

    def _may_compose(self, history: History) -> bool:
        """Whether ε of exactly this is known now; it is composed where there is time."""
        if history in self._exact:
            return True
        now = self._clock()
        self._saved = min(SAVED, self._saved + SHARE * (now - self._looked))
        self._looked = now
        if self._saved <= 0 and not self.final:
            return False
        if self._few or self.final:
            self._compose(history)
        else:
            self._compose_later(history)
        return history in self._exact

    def _compose(self, history: History) -> None:
        began = time.thread_time()
        self._epsilon(history)
        self._saved -= time.thread_time() - began
        if len(self._exact) >= KEPT:
            self._exact.clear()
        self._exact.add(history)

    def _compose_later(self, history: History) -> None:
        """Compose in the thread, unless the result is known or the thread is at work."""
        if history not in self._exact and (self._composing is None or self._composing.done()):
            self._composing = self._ahead_of_time.submit(self._compose, history)
