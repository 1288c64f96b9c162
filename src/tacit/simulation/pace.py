"""The times in a simulation: how long an edge's work and messages take, and when it is present.

Every edge draws from its own stream, seeded by the run's seed and its number: what happens to one
edge changes no other's times. All times are in seconds. Streams are numpy's RandomState, frozen
across versions.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np

from tacit.config.definition import Definition
from tacit.config.sections import Delay


class Durations:
    """Durations of one kind, drawn one after another from `random`."""

    def __init__(self, delay: Delay, random: np.random.RandomState) -> None:
        self.mean = delay.seconds
        self._model = delay.model
        self._spread = delay.spread
        self._random = random

    def next(self) -> float:
        """Draw one duration of mean m.

        It is constant, uniform on m(1 ± s), exponential, Poisson, or log-normal (σ = s).
        """
        mean = self.mean
        spread = self._spread
        random = self._random
        match self._model:
            case "constant":
                return mean
            case "uniform":
                return float(random.uniform(mean * (1 - spread), mean * (1 + spread)))
            case "exponential":
                return float(random.exponential(mean))
            case "poisson":
                return float(random.poisson(mean))
            case "lognormal":
                return mean * float(random.lognormal(-(spread**2) / 2, spread))


def seeded_stream(seed: int, *names: int) -> np.random.RandomState:
    """Return the stream of this seed and these numbers, independent of all others."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence([seed, *names])))


class EdgeTimes:
    """The times of edge number `number`: of its work, its messages and its absences."""

    def __init__(self, definition: Definition[Any], number: int) -> None:
        network = definition.network
        seed = definition.run.seed
        count = definition.edges.count
        self._random = seeded_stream(seed, 1, number)
        self._compute = Durations(network.compute, self._random)
        self._uplink, self._downlink = (
            Durations(each, self._random) for each in (network.uplink, network.downlink)
        )
        self._slow_tasks = network.slow_tasks
        self._slow_factor = network.slow_factor
        self._drop_out = network.drop_out
        schedule = [(away.leaves, away.returns) for away in network.away if away.edge == number]
        self._presence = _Presence(
            schedule, network.online_s, network.offline_s, seeded_stream(seed, 2, number)
        )
        slowdown = definition.edges.slowdown_of(number)
        straggles = number >= count - network.stragglers
        if straggles:
            self._scale = slowdown * network.straggler_factor
        else:
            self._scale = slowdown
        if network.start == "cyclic":
            self._phase = number / count
        else:
            self._phase = 0.0
        self.dropped_out = False  # for good

    def start(self, steps: int) -> float:
        """Return when the edge first sends Hello.

        With a cyclic start it waits for a part of a task of `steps` steps.
        """
        return self.next_online(self._phase * steps * self._compute.mean)

    def hello(self, now: float) -> float:
        """Return when a Hello that is sent now arrives at the server (inf: never)."""
        return self.next_online(now + self._uplink.next())

    def task(self, now: float, steps: int) -> float:
        """Return when the answer to a model that is sent now arrives at the server (inf: never).

        Its task has `steps` local steps. One duration of a step is drawn for the whole task. An
        edge that is away when it is done sends on its return.
        """
        working = self._working(steps)
        duration = self.downlink() + working + self.uplink()
        return self._end_of_work(now + duration)

    def step(self, now: float) -> float:
        """Return when a peer's step that begins now is done (inf: never).

        Its messages take their own time.
        """
        return self._end_of_work(now + self._working(1))

    def uplink(self) -> float:
        """Draw how long a message takes from this edge to the broker, or to the server."""
        return self._uplink.next()

    def downlink(self) -> float:
        """Draw how long a message takes from the broker, or the server, to this edge."""
        return self._downlink.next()

    def _working(self, steps: int) -> float:
        working = steps * self._compute.next() * self._scale
        if self._slow_tasks and self._random.uniform() < self._slow_tasks:
            working *= self._slow_factor
        return working

    def _end_of_work(self, when: float) -> float:
        if self._drop_out and self._random.uniform() < self._drop_out:
            self.dropped_out = True
        return self.next_online(when)

    def next_online(self, when: float) -> float:
        """Return the first moment from `when` on at which the edge is present, or inf."""
        if self.dropped_out:
            return math.inf
        return self._presence.next(when)


class _Presence:
    """The times at which an edge is present.

    It is absent by its part of the schedule, and at random times that are drawn as time goes on.
    """

    def __init__(
        self,
        schedule: Iterable[tuple[float, float | None]],
        online: float | None,
        offline: float,
        random: np.random.RandomState,
    ) -> None:
        """schedule: absences as (leaves, returns), where None is never.

        online, offline: mean seconds of random presence and absence; online None: always present.
        """
        self._schedule = sorted(
            (leaves, math.inf if returns is None else returns) for leaves, returns in schedule
        )
        self._online = online
        self._offline = offline
        self._random = random
        self._leaves: list[float] = []  # when the random absences drawn so far begin, in order
        self._returns: list[float] = [0.0]  # when they end, after a first one that ended at 0

    def next(self, when: float) -> float:
        while (moved := self._after_churn(self._after_schedule(when))) != when:
            when = moved
        return when

    def _after_schedule(self, when: float) -> float:
        return next(
            (returns for leaves, returns in self._schedule if leaves <= when < returns), when
        )

    def _after_churn(self, when: float) -> float:
        if self._online is None or math.isinf(when):
            return when
        while self._returns[-1] <= when:
            self._leaves.append(self._returns[-1] + float(self._random.exponential(self._online)))
            self._returns.append(self._leaves[-1] + float(self._random.exponential(self._offline)))
        absences = bisect_right(self._leaves, when)
        return max(when, self._returns[absences])
