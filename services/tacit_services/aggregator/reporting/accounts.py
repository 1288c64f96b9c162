"""The ε of what each edge has released, for all who ask during a run.

A composition takes 10 to 100 ms, which training would miss at every status. So ε is that of exactly
what was released, if it is known or much time is saved up. Otherwise it is an upper bound
(`ahead`), a fine one if there is some time, which the next questions find. Each number is marked as
one or the other. Numbers that have not changed are not computed again, and the edge that has
released most stands for all that release alike. With many edges nobody who asks waits for the exact
number: a thread composes it, and the next bound before an edge comes to it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

from tacit.algorithms.base.records import EdgeRecord
from tacit.privacy.accounting import History, epsilon_pld
from tacit.privacy.report import EdgePrivacy, Promise

FEW = 100  # up to this many edges a request waits for exact numbers
# part of the time for compositions; seconds saved up, at most
SHARE = 0.01
SAVED = 0.25
MUCH = SAVED / 2  # seconds: with more saved up there is time for an exact ε
KEPT = 4096  # histories that are known to have been composed
# Significant bits that a count is rounded up to, tried until ε is within the budget: four of them
# add at most an eighth, seven a 64th.
ROUGHER = (4, 6, 8)
FINER = (7, 9)


@dataclass(frozen=True, slots=True)
class Spending:
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
class _Spender:
    """The common part of edges with one history and budget.

    alike: the same for those whose histories differ in the last count only, so that the largest
    count costs most.
    """

    history: History
    budget: float
    releases: int
    alike: tuple[History, float]


class Accounts:
    """The spending of one run's edges; for any thread."""

    def __init__(self, promise: Promise, clock: Callable[[], float] = time.monotonic) -> None:
        self._promise = promise
        self._clock = clock
        self._composed_before: set[History] = set()  # they have been composed
        # As they were looked at last, by place: records keep their order, and new ones come behind.
        self._names: list[str] = []
        self._histories: list[History] = []
        self._spenders: list[_Spender] = []
        self._spender = lru_cache(KEPT)(_spender)
        self._budget = lru_cache(None)(promise.budget)
        self._ahead_of_time = ThreadPoolExecutor(1, "accounts")
        self._composing: Future[None] | None = None
        self._few = True
        self._spendings: dict[str, Spending] = {}
        self._saved = SAVED
        self._looked = clock()
        self.busy = threading.Lock()  # one composition at a time
        self.final = False  # once the run is over there is time for every ε

    def total(self, records: Mapping[str, EdgeRecord], *, steady: bool = False) -> Total:
        """Return ε of exactly these `records` together: never less than they have released.

        While another thread is at it, this one waits: what was last found is of fewer releases than
        the counts that it would be shown beside. steady: it depends on `records` alone, and not on
        the time that there is.
        """
        with self.busy:
            self._few = len(records) <= FEW
            return self._together(records, steady and not self.final)

    def of(self, records: Mapping[str, EdgeRecord]) -> dict[str, Spending]:
        """Return the account of each of `records`.

        While another thread is at it, those that were last found will do.
        """
        cached = self._spendings
        if not self.final and self.busy.locked() and records.keys() <= cached.keys():
            return {name: cached[name] for name in records}
        with self.busy:
            spendings = {name: self._account(name, record) for name, record in records.items()}
            self._spendings |= spendings
            return spendings

    def roughest(self, name: str, record: EdgeRecord) -> Spending:
        """Return an edge's account by the roughest bound: it depends on the record alone."""
        with self.busy:
            more = self._at_most(record.spent, self._budget(name), steady=True)
            spent = self._promise.spent(name, record.spent, record.charged, more)
            return Spending(record, spent, more != record.spent)

    # -- one edge ----------------------------------------------------------------------------------

    def _account(self, name: str, record: EdgeRecord) -> Spending:
        cached = self._spendings.get(name)
        history = record.spent
        current = cached is not None and cached.record is record
        if (
            cached is not None
            and current
            and (not cached.bound or not self._is_known(history, MUCH))
        ):
            return cached
        more = self._at_most(history, self._budget(name))
        spent = self._promise.spent(name, history, record.charged, more)
        return Spending(record, spent, more != history)

    def _at_most(self, history: History, budget: float, *, steady: bool = False) -> History:
        """Return the history itself if its ε is known or there is time, else a little more.

        A little more is rounded up, so that there are few. It is the history itself if that would
        be above the budget.
        """
        if not steady and self._is_known(history, MUCH):
            return history
        fine = not steady and self._is_known(ahead(history, FINER[0]), 0.0)
        for bits in FINER if fine else ROUGHER:
            more = ahead(history, bits)
            if self._epsilon(more) <= budget:
                return more
        return history

    # -- all of them -------------------------------------------------------------------------------

    def _together(self, records: Mapping[str, EdgeRecord], steady: bool) -> Total:
        spenders = self._looked_at(records)
        distinct = dict.fromkeys(spenders)  # many edges share one
        least = min((spender.releases for spender in distinct), default=0)
        at = next((at for at, spender in enumerate(spenders) if spender.releases == least), None)
        if at is None:
            slowest = None
        else:
            slowest = self._names[at]
        more = {
            spender: self._at_most(spender.history, spender.budget, steady=steady)
            for spender in _most(distinct)
        }
        if self._promise.composition == "max":
            epsilon, bound = self._largest(more, steady)
        else:
            by_name = dict(zip(self._names, spenders, strict=True))
            epsilon, bound = self._composed(records, by_name, steady)
        share = max((self._share(spender, spent) for spender, spent in more.items()), default=0.0)
        return Total(epsilon, bound, share, slowest, least)

    def _looked_at(self, records: Mapping[str, EdgeRecord]) -> list[_Spender]:
        """Return the spender of each of `records`, in their order.

        A new one is made only where the history has changed.
        """
        names = list(records)
        now = [record.spent for record in records.values()]
        earlier = self._histories
        spenders = list(self._spenders)
        if names[: len(self._names)] != self._names:  # records of another fold
            earlier = []
            spenders = []
        old_count = len(earlier)
        changed = [at for at, history in enumerate(earlier) if now[at] is not history]
        for at in changed:
            spenders[at] = self._spender(now[at], self._budget(names[at]))
        spenders += map(self._spender, now[old_count:], map(self._budget, names[old_count:]))
        self._names = names
        self._histories = now
        self._spenders = spenders
        return spenders

    def _share(self, spender: _Spender, more: History) -> float:
        bounded = spender.budget and math.isfinite(spender.budget)
        if bounded:
            return self._epsilon(more) / spender.budget
        return 0.0

    def _largest(self, spent: Mapping[_Spender, History], steady: bool) -> tuple[float, bool]:
        """Return the largest ε, and whether it is an upper bound."""
        if not spent:
            return 0.0, False
        spender, more = max(spent.items(), key=lambda pair: self._epsilon(pair[1]))
        if not self._few and not steady:
            self._compose_later(ahead(tuple(replace(r, count=r.count + 1) for r in more)))
        return self._epsilon(more), more != spender.history

    def _composed(
        self, records: Mapping[str, EdgeRecord], spenders: Mapping[str, _Spender], steady: bool
    ) -> tuple[float, bool]:
        """Return ε of those who hold the same people, and whether it is an upper bound."""
        more = {
            name: self._at_most(spender.history, spender.budget, steady=steady)
            for name, spender in spenders.items()
        }
        spent = [
            self._promise.spent(name, spender.history, records[name].charged, more[name])
            for name, spender in spenders.items()
        ]
        bound = self._promise.composition == "together"
        return self._promise.epsilon(spent), bound and any(
            more[name] != spender.history for name, spender in spenders.items()
        )

    # -- time --------------------------------------------------------------------------------------

    def _epsilon(self, history: History) -> float:
        if history not in self._composed_before:
            self._compose(history)
        return epsilon_pld(history, self._promise.delta)

    def _is_known(self, history: History, saved: float) -> bool:
        """Return whether ε of exactly this is known now.

        It is composed where more than `saved` is left.
        """
        if history in self._composed_before:
            return True
        if self._seconds_saved() <= saved and not self.final:
            return False
        if self._few or self.final:
            self._compose(history)
        else:
            self._compose_later(history)
        return history in self._composed_before

    def _seconds_saved(self) -> float:
        """Return seconds saved up; below 0 when bounds that could not wait have taken more."""
        now = self._clock()
        self._saved = min(SAVED, self._saved + SHARE * (now - self._looked))
        self._looked = now
        return self._saved

    def _compose(self, history: History) -> None:
        began = time.thread_time()
        epsilon_pld(history, self._promise.delta)
        self._saved -= time.thread_time() - began
        if len(self._composed_before) >= KEPT:
            self._composed_before.clear()
        self._composed_before.add(history)

    def _compose_later(self, history: History) -> None:
        """Compose in the thread, unless the result is known or the thread is at work."""
        if history not in self._composed_before and (
            self._composing is None or self._composing.done()
        ):
            self._composing = self._ahead_of_time.submit(self._compose, history)


def _spender(history: History, budget: float) -> _Spender:
    alike = (*history[:-1], *(replace(row, count=0) for row in history[-1:]))
    return _Spender(history, budget, sum(row.count for row in history), (alike, budget))


def _most(spenders: Iterable[_Spender]) -> list[_Spender]:
    """Return, of those who release alike, the one with most releases: its ε is the largest."""
    most: dict[tuple[History, float], _Spender] = {}
    for spender in spenders:
        largest = most.setdefault(spender.alike, spender)
        if spender.releases > largest.releases:
            most[spender.alike] = spender
    return list(most.values())


def ahead(history: History, bits: int = ROUGHER[0]) -> History:
    """Round every count up to `bits` significant bits: a little more than was spent, never less.

    Composing takes up to 100 ms, time that training would miss. So it is done for eight counts an
    octave, or 64 if there is time. Each result serves every edge until its count passes it.
    """
    return tuple(replace(row, count=_rounded_up(row.count, bits)) for row in history)


def _rounded_up(count: int, bits: int) -> int:
    step = 1 << max(0, count.bit_length() - bits)
    return -(-count // step) * step
