"""Participation in an asynchronous run: when it begins, and which edge's turn it is.

The rules have no clock of their own. Each edge has an account: the turns that it has taken, divided
by its weight (the share that the run file gives it). If its account is ahead, by the slack, of an
edge that is waited for, it waits for its next task until that edge has caught up. No edge waits for
one that is disconnected, keeps its task longer than the lease, or is slow. An edge is slow if its
turns, with the one under way, take more than SLOW times as long as those of the quickest quarter
(by weight).

A run cannot stall: of the edges that are waited for, the one furthest behind is never held back. It
answers, or its lease runs out and it is not waited for until it answers. In both cases the next may
go on. A lease begins when a task is first given and is not renewed by asking again. An edge that
was not waited for makes up for no more than the slack. A newcomer begins at the foremost account.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

# Other edges wait for a task for LEASE seconds, or for LEASES usual turns if that is longer.
LEASE = 2.0
LEASES = 4.0
SLOW = 2.0  # an edge this many times as slow as the quickest quarter is not waited for
WINDOW = 32  # turns whose mean tells how slow an edge is
PART = 20  # the slack is one PARTth of an edge's updates in the run ...
LEAST = 2.0  # ... but at least this: an edge one turn ahead has only been quick
# All accounts are compared once in this many seconds for each account, or once an eighth of them
# have ended a turn. So a turn costs eight comparisons, however many edges there are.
LOOK = 4e-4


class Start:
    """The beginning of a run: with `needed` edges, or after a while with the connected ones.

    The while is `wait` seconds from the first edge's coming.
    """

    def __init__(self, needed: int, wait: float) -> None:
        self._needed = needed
        self._wait = wait
        self._first: float | None = None
        self.begun = False

    @property
    def needed(self) -> int:
        """Edges that it waits for; 0 once it has begun."""
        if self.begun:
            return 0
        return self._needed

    def look(self, arrived: int, count_online: Callable[[], int], now: float) -> bool:
        """Return whether the run has begun. It never waits again.

        arrived: edges that have ever come. count_online: counts those that are still here. It is
        called only if the run could begin.
        """
        if arrived and self._first is None:
            self._first = now
        late = self._first is not None and now - self._first >= self._wait
        if not self.begun and (arrived >= self._needed or late):
            count = count_online()
            self.begun = count >= self._needed or bool(count and late)
        return self.begun


@dataclass(slots=True)
class EdgeTurns:
    """One edge's account.

    level: turns taken, divided by its weight. since: when it got its task, or ended its latest one,
    in seconds. busy: whether it has a task.
    """

    weight: float
    level: float
    since: float = 0.0
    busy: bool = False
    turns: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def pace(self) -> float:
        """Seconds of a turn, lately; 0: not known."""
        if self.turns:
            return sum(self.turns) / len(self.turns)
        return 0.0


class Shares:
    """The accounts of a run's edges. `is_online`: whether an edge is connected and able to push."""

    def __init__(
        self, weight: Callable[[str], float], slack: float, is_online: Callable[[str], bool]
    ) -> None:
        self._weight = weight
        self.slack = slack
        self._is_online = is_online
        self.accounts: dict[str, EdgeTurns] = {}
        self.front = 0.0  # the highest level at which a turn has begun
        self._floor = 0.0  # no edge that is waited for is below
        self._usual = 0.0  # seconds of a turn of the quickest quarter; 0: not known
        self._ended = 0  # turns since that was found
        self._turns = 0  # turns since the accounts were looked at
        self._looked = -math.inf

    def resume(self, turns: dict[str, int]) -> None:
        """Begin with the turns that edges have taken before.

        One that is behind makes up for no more than the slack.
        """
        weights = {edge: self._weight(edge) for edge in turns}
        self.front = max(
            (max(0, count - 1) / weights[edge] for edge, count in turns.items()), default=0.0
        )
        self._floor = self.front - self.slack
        for edge, count in turns.items():
            self.accounts[edge] = EdgeTurns(weights[edge], max(count / weights[edge], self._floor))

    def end(self, edge: str, now: float) -> None:
        """End the turn of `edge`, as its update has been accepted."""
        account = self._account(edge)
        self._turns += 1
        if account.busy:
            account.turns.append(now - account.since)
            self._ended += 1
        account.level += 1 / account.weight
        account.busy = False
        account.since = now

    def begin(self, edge: str, now: float) -> bool:
        """Return whether `edge` may have a task now. True begins its turn.

        An edge that has a task already may have it again. The answer depends on the last comparison
        of accounts. `ready` compares them anew, for edges that have to wait.
        """
        account = self._account(edge)
        if account.busy:
            return True
        if account.level - self._floor >= self.slack:
            return False
        account.level = max(account.level, self.front - self.slack)
        self.front = max(self.front, account.level)
        self._floor = min(self._floor, account.level)
        account.busy = True
        account.since = now
        return True

    def look_due(self, now: float) -> bool:
        """Return whether to ask now which edges are `ready`; before, none can have become so."""
        count = len(self.accounts)
        return 8 * self._turns >= count or now - self._looked >= LOOK * count

    def ready(self, edges: Iterable[str], now: float) -> list[str]:
        """Return the waiting `edges` that may have a task now; their turns begin."""
        self._look(now)
        return [edge for edge in edges if self.begin(edge, now)]

    def _account(self, edge: str) -> EdgeTurns:
        if edge not in self.accounts:
            self.accounts[edge] = EdgeTurns(self._weight(edge), self.front)
        return self.accounts[edge]

    def _look(self, now: float) -> None:
        """Find the lowest level of the edges that are waited for; inf if there is none."""
        self._turns = 0
        self._looked = now
        if self._ended >= len(self.accounts) / 4:
            self._usual = self._quickest()
            self._ended = 0
        levels = (
            account.level
            for edge, account in self.accounts.items()
            if self._waited_for(edge, account, now)
        )
        self._floor = min(levels, default=math.inf)

    def _waited_for(self, edge: str, account: EdgeTurns, now: float) -> bool:
        age = now - account.since
        usual = self._usual
        if age > max(LEASE, LEASES * usual) or not self._is_online(edge):
            return False
        if not account.turns or not usual:
            return True
        running = (
            age if account.busy else 0.0
        )  # the task under way counts: else one could be quick first, then stall
        return sum(account.turns) + running <= SLOW * usual * (len(account.turns) + account.busy)

    def _quickest(self) -> float:
        """Return the longest turn, in seconds, of the quickest quarter of edges by weight."""
        paces = sorted(
            (a.pace, a.weight)
            for edge, a in self.accounts.items()
            if a.turns and self._is_online(edge)
        )
        passed = 0.0
        quarter = sum(weight for _, weight in paces) / 4
        for pace, weight in paces:
            passed += weight
            if passed >= quarter:
                return pace
        return 0.0


def slack(updates: int, weights: Iterable[float]) -> float:
    """Return how far an edge may be ahead of another, in turns of an edge of weight 1.

    updates: of the whole run. weights: of all its edges.
    """
    return max(LEAST, updates / sum(weights) / PART)
