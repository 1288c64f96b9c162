"""The simulator of peers: the same roles as over MQTT, under a virtual clock, in one process.

An event is a step that is done, a message that arrives, or a peer's return. A step takes
[network]'s compute, a message its sender's uplink and its receiver's downlink. What is sent to a
peer that is away is lost, as with a broker that keeps nothing; when it is back, both sides ask
again for what is open. Reports reach the observer at once. A gradient is computed when its step is
done, at the model that was read when it began. As in `client_server`, everything is a function of
the run file.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.gossip.worker import GossipWorker
from tacit.config.definition import Definition
from tacit.errors import BudgetSpent
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.release import Released
from tacit.protocol.messages import Deadline, Halt, Outgoing, PeerMessage
from tacit.simulation.batched_edges import can_batch, clipped_sums
from tacit.simulation.client_server import received
from tacit.simulation.pace import EdgeTimes

NOBODY = "nobody is left who could take a step"
_Event = tuple[float, int, Callable[[], None]]


class PeerSimulator:
    """An observer and its peers, in virtual time."""

    def __init__(
        self, definition: Definition[Any], server: ServerRole, peers: Sequence[GossipWorker]
    ) -> None:
        self.server = server
        self.edges = {role.edge: role for role in peers}
        self.now = 0.0
        self.refused = 0
        self._times = {
            role.edge: EdgeTimes(definition, number) for number, role in enumerate(peers)
        }
        self._events: list[_Event] = []
        self._scheduled = 0
        self._busy: dict[str, Tensor] = {}  # peers that compute a step, and at which model
        # Sums that were computed together with another peer's.
        self._computed_ahead: dict[str, Clipped] = {}
        self._reported: dict[str, tuple[int, Tensor | None]] = dict.fromkeys(self.edges, (0, None))

    def run(self, observe: Callable[[ServerRole], None] = lambda role: None) -> None:
        """Simulate to the end; `observe` sees the observer's role after every event.

        It ends early where nothing can happen any more.
        """
        for name, role in self.edges.items():
            self._tell(role.start())
            self._at(self._times[name].start(1), partial(self._begin, name))
        while not self.server.halted:
            if not self._events:
                self._finish_early()
                return
            self.now, _, happen = heapq.heappop(self._events)
            happen()
            observe(self.server)

    def _finish_early(self) -> None:
        timer = self.server.awaited()
        # All peers have said their last word, so the observer's deadline is over at once.
        if timer is not None:
            self.server.on_message(Deadline(timer.number))
        if not self.server.halted:
            self.server.on_message(Halt(self.server.version, NOBODY))

    # -- a peer ------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        """Begin a step where none is under way.

        The peer must be present, wait for nobody and not be finished.
        """
        role = self.edges[name]
        back = self._times[name].next_online(self.now)
        if name in self._busy:
            return
        if back > self.now:
            self._at(back, partial(self._begin, name))
            return
        role.here = {
            other
            for other in role.neighbours
            if self._times[other].next_online(self.now) == self.now
        }
        params, outgoing = role.begin()
        self._send(role, outgoing)
        if params is not None:
            self._busy[name] = params
            self._at(self._times[name].step(self.now), partial(self._finish, name))

    def _gradient(self, name: str) -> Released:
        """Return the release of a peer's step.

        Its sum is computed with those of all others that compute, as each is a function of the
        model and its peer alone.
        """
        if name not in self._computed_ahead and self._can_batch(name):
            due = [
                other
                for other in self._busy
                if other not in self._computed_ahead and self._can_batch(other)
            ]
            sums = clipped_sums(
                [self.edges[other] for other in due], [self._busy[other] for other in due]
            )
            self._computed_ahead |= zip(due, sums, strict=True)
        role = self.edges[name]
        params = self._busy.pop(name)
        total = self._computed_ahead.pop(name, None)
        if total is None:
            return role.gradient(params)
        return role.releaser.release(role.settings.clip, lambda: total)

    def _can_batch(self, name: str) -> bool:
        return can_batch(self.edges[name], self.edges[name].settings.clip)

    def _finish(self, name: str) -> None:
        role = self.edges[name]
        try:
            released = self._gradient(name)
        except BudgetSpent as spent:
            self._send(role, role.abandon())
            self._tell(role.retire(str(spent)))
            self._relay(name)
            return
        self._send(role, role.finish(released))
        self._report(role)
        self._begin(name)

    def _relay(self, name: str) -> None:
        """Average on.

        Without a budget a peer takes no more steps, but it averages while anybody else does.
        """
        role = self.edges[name]
        if not role.finished and self._anybody_left():
            self._send(role, role.propose())
            self._at(self._times[name].step(self.now), partial(self._relay, name))

    def _anybody_left(self) -> bool:
        """Check whether a peer has budget left; without one, averages would be taken for ever."""
        records = self.server.edges
        return any(name not in records or not records[name].retired for name in self.edges)

    def _hear(self, name: str, message: PeerMessage) -> None:
        role = self.edges[name]
        back = self._times[name].next_online(self.now)
        if back > self.now:  # the message is lost; once back, the peer asks again, and is asked
            self._at(back, partial(self._back, name))
            return
        self._send(role, role.hear(message))
        self._report(role)
        if role.waits:  # SYNC: the last share of a round lets its peer go on
            self._begin(name)

    def _back(self, name: str) -> None:
        role = self.edges[name]
        self._send(role, role.repeat(role.neighbours))
        for other in sorted(role.neighbours):
            self._send(self.edges[other], self.edges[other].repeat([name]))

    def _send(self, role: GossipWorker, outgoing: list[Outgoing]) -> None:
        for out in outgoing:
            assert isinstance(out.message, PeerMessage)
            arrival = self.now + self._times[role.edge].uplink() + self._times[out.to].downlink()
            self._at(arrival, partial(self._hear, out.to, out.message))

    # -- the observer ------------------------------------------------------------------------------

    def _report(self, role: GossipWorker) -> None:
        steps = role.steps
        params = role.trained.params
        before, reported = self._reported[role.edge]
        last = role.finished and role.settled and params is not reported
        if last or steps - before >= role.settings.report_every:
            self._reported[role.edge] = steps, params
            self._tell(role.report())

    def _tell(self, outgoing: list[Outgoing]) -> None:
        for out in outgoing:
            self.server.on_message(received(out.message))

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        if math.isfinite(when):
            self._scheduled += 1
            heapq.heappush(self._events, (when, self._scheduled, happen))
