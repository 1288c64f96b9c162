"""The scheduler: which edges get a task now, and which wait.

It applies the rules of participation.py to the time and the connected edges. It decides when a
model goes out, never which model. Nothing of it is in the journal: a replay has the entries' order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Set
from typing import Any

from tacit.algorithms.base.rounds import RoundServer
from tacit.algorithms.base.server import ServerRole
from tacit.config.definition import Definition
from tacit_services.aggregator import participation

log = logging.getLogger("tacit.task_scheduler")
_AWAY = ("offline", "left")


class TaskScheduler:
    """A scheduler that holds no task back: rounds, peers and parties have rules of their own."""

    @property
    def needed(self) -> int:
        """Edges that the run waits for before it begins; 0: it has begun."""
        return 0

    def begin(self) -> None:
        """Begin the run with the edges that are there, and wait for no more."""

    def resume(self) -> None:
        """Continue a run that was taken over."""

    def heard(self, edge: str, *, update: bool) -> None:
        """Note that a message of `edge`, an update or another, was accepted and folded."""

    def admits(self, edge: str) -> bool:
        """Return whether `edge` may be given a task now; else it waits until `due` names it."""
        return True

    def due(self) -> list[str]:
        """Return edges that have waited and may now be given a task."""
        return []


class FairScheduler(TaskScheduler):
    """The scheduler of a run that answers edge by edge, for the driver's thread only."""

    def __init__(
        self,
        role: ServerRole,
        presence: Mapping[str, str],
        shut_out: Callable[[], Set[str]],
        start: participation.Start,
        *,
        weight: Callable[[str], float],
        slack: float,
        shared: bool,
        clock: Callable[[], float],
    ) -> None:
        """shut_out: edges that the guard hears no more. start: when the run begins.

        weight, slack, shared: an edge's share by its name, how far one may be ahead, and whether
        shares are kept to at all.
        """
        self._role = role
        self._presence = presence
        self._shut_out = shut_out
        self._clock = clock
        self._start = start
        self._shared = shared
        self._shares = participation.Shares(weight, slack, self._able)
        self._waiting: dict[str, None] = {}

    @property
    def needed(self) -> int:
        """Edges that the run waits for before it begins; 0: it has begun."""
        return self._start.needed

    def begin(self) -> None:
        """Begin the run with the edges that are there, and wait for no more."""
        if not self._start.begun:
            self._start.begun = True
            log.info("the operator begins the run with %d edges", self._count_there())

    def resume(self) -> None:
        """Continue a run that was taken over; one that has begun does not wait to begin."""
        turns = {
            edge: record.updates for edge, record in self._role.edges.items() if record.updates
        }
        self._start.begun = self._start.begun or bool(turns)
        self._shares.resume(turns)

    def heard(self, edge: str, *, update: bool) -> None:
        """End an edge's turn, if the message is an update.

        The first update begins the run: its edge had its task before this process.
        """
        if update:
            self._start.begun = True
            self._shares.end(edge, self._clock())

    def admits(self, edge: str) -> bool:
        """Return whether `edge` may be given a task now; else it waits until `due` names it."""
        if self._begun() and (not self._shared or self._shares.begin(edge, self._clock())):
            self._waiting.pop(edge, None)
            return True
        self._waiting[edge] = None
        return False

    def due(self) -> list[str]:
        """Return edges that have waited and may now be given a task."""
        if not self._waiting or self._role.halted or not self._begun():
            return []
        if self._shared and not self._shares.look_due(self._clock()):
            return []
        able = [edge for edge in self._waiting if self._able(edge)]
        if self._shared:
            ready = self._shares.ready(able, self._clock())
        else:
            ready = able
        for edge in ready:
            del self._waiting[edge]
        return ready

    def _begun(self) -> bool:
        if self._start.begun:
            return True
        if self._start.look(len(self._role.edges), self._count_there, self._clock()):
            log.info("the run begins with %d edges", self._count_there())
        return self._start.begun

    def _count_there(self) -> int:
        return sum(self._is_online(edge) for edge in self._role.edges)

    def _is_online(self, edge: str) -> bool:
        return self._presence.get(edge) not in _AWAY

    def _able(self, edge: str) -> bool:
        """Return whether the edge is connected and may push."""
        record = self._role.edges.get(edge)
        able = record is not None and not record.retired and edge not in self._shut_out()
        return able and self._is_online(edge) and self._presence.get(edge) != "refusing"


def scheduler_of(
    definition: Definition[Any],
    role: ServerRole,
    presence: Mapping[str, str],
    shut_out: Callable[[], Set[str]],
    clock: Callable[[], float] = time.monotonic,
) -> TaskScheduler:
    """Return the scheduler of a run; shut_out: edges that the guard hears no more."""
    if isinstance(role, RoundServer) or definition.algorithm.worker != "edge":
        return TaskScheduler()
    weights = [
        definition.weight(name) for name in definition.worker_names[: definition.edges.count]
    ]
    return FairScheduler(
        role,
        presence,
        shut_out,
        participation.Start(definition.edges.needed_to_start, definition.edges.wait),
        weight=definition.weight,
        slack=participation.slack(definition.run.updates * definition.traits.uploads, weights),
        shared=definition.enforces_share,
        clock=clock,
    )
