"""The computing side of a peer:

step after step, reports for the observer now and then, and an orderly end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from torch import Tensor

from tacit.algorithms.gossip.adp2sgd import Worker
from tacit.errors import BudgetSpent
from tacit.privacy.release import Released
from tacit.protocol.messages import Outgoing
from tacit_services.peer.exchange import Exchange
from tacit_services.peer.state import PeerState
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.worker.cpu_turns import Turns
from tacit_services.worker.loop import EdgeLoop, LoopSettings
from tacit_services.worker.outbox import Outbox

log = logging.getLogger("tacit.peer")
WAKE = "wake"  # put into the inbox when another peer's message may have given us something to do
QUIET = 1.0  # seconds without a word from the others after which a peer that is settled may leave
LINGER = 15.0  # seconds that it waits for that, at most
# seconds from the beginning of a step, at most, until the next if no other peer has been heard
# meanwhile
PACE = 0.1
RELAY = 1.0  # seconds between two exchanges that a peer without budget proposes


class PeerLoop(EdgeLoop):
    """Drives one worker until the run is over. The observer may be away: nothing waits for it."""

    def __init__(
        self,
        role: Worker,
        outbox: Outbox,
        terms: LoopSettings,
        state: PeerState,
        every: int,
        turns: Turns | None = None,
    ) -> None:
        """`every`: own steps between two reports."""
        super().__init__(role, outbox, terms, turns)
        self.worker, self._every = role, every
        self.exchange = Exchange(
            role,
            state,
            terms.run_id,
            terms.schema,
            terms.chunk,
            terms.patience,
            lambda: self.inbox.put(WAKE),
        )
        self._reported: tuple[int, Tensor | None] = (role.steps, None)
        self._relayed_at = self._stepped_at = 0.0
        self._heard = 0  # messages of other peers when the latest step began
        self._finished_at: float | None = None
        self._idle = True

    def subscriptions(self) -> list[str]:
        """As an edge's, and what peers say."""
        return [*super().subscriptions(), *self.exchange.subscriptions]

    def receive(self, inbound: Inbound) -> None:
        """From the network thread: what peers say goes to the other thread."""
        of_peers = inbound.topic.split("/")[3:4] in (["peer"], ["presence"])
        (self.exchange.inbox if of_peers else self.inbox).put(inbound)

    def run(
        self, connection: Connection, stop: threading.Event, present: Callable[[str], None]
    ) -> str:
        """Serve; returns why it ended. Raises PrivacyError."""
        self._connection, self._present, self._stop = connection, present, stop
        self.outbox.check(self.role.releaser.ledger)
        with self.exchange.serving(connection):
            self._post(self.role.start())
            while not stop.is_set() and not self.role.halted:
                self._turn()
            if self.role.halted and not self.retired:
                # first: the observer does not wait for it as long as others may for answers
                self._last_account()
            deadline, self._idle = time.monotonic() + LINGER, True
            while not stop.is_set() and time.monotonic() < deadline and not self._others_are_done():
                self._take()
        return self.role.halted or "stopped"

    def _turn(self) -> None:
        self._take()
        if self.exchange.failure is not None:
            raise self.exchange.failure
        if self.outbox.oldest() is not None:
            self._send_when_due()
        elif self._asked_at == 0.0:  # an observer that does not know us
            self._post(self.role.start())
        else:
            self._report_when_due()
        self._advance()

    @property
    def _nothing_to_do(self) -> bool:
        return self._idle

    def _handle(self, item: Inbound | str) -> None:
        if item is WAKE:
            return
        if isinstance(item, str):
            self.exchange.reconnected()
        super()._handle(item)

    def _others_are_done(self) -> bool:
        with self.exchange.lock:
            settled = self.worker.settled
        return settled and time.monotonic() - self.exchange.heard_at > QUIET

    # -- steps and reports -------------------------------------------------------------------------

    def _advance(self) -> None:
        if self.retired:
            self._relay()
            return
        self._idle = self._early()
        if self._idle:
            return
        read: list[Tensor] = []
        self._heard, self._stepped_at = self.exchange.counts["heard"], time.monotonic()

        def begin() -> list[Outgoing]:
            params, outgoing = self.worker.begin()
            read.extend([] if params is None else [params])
            return outgoing

        self.exchange.say(begin)
        self._idle = not read
        if self._idle:
            return
        released = self._gradient(read[0])
        if released is None:
            self.exchange.say(self.worker.abandon)
        else:
            self.exchange.say(lambda: self.worker.finish(released))

    def _early(self) -> bool:
        """Whether the exchange that belongs to the latest step is still to come: Algorithm 1 has
        one in every step.

        Where a step is shorter than a message, peers that went on without would train models of
        their own, apart.
        """
        if self.worker.waits or not self.worker.here or self.exchange.counts["heard"] > self._heard:
            return False
        return time.monotonic() - self._stepped_at < PACE  # a longer step is never put off

    def _gradient(self, params: Tensor) -> Released | None:
        try:
            return self._computed(lambda: self.worker.gradient(params))
        except BudgetSpent as spent:
            self._retire(self.role.retire(str(spent)))
            return None

    def _relay(self) -> None:
        """Without a budget there are no steps;

        averaging goes on, so that what others learn still passes.
        """
        self._idle = True
        if time.monotonic() - self._relayed_at > RELAY and not self.worker.finished:
            self._relayed_at = time.monotonic()
            self.exchange.say(self.worker.propose)

    def _report_when_due(self) -> None:
        """Every so many steps;

        and once the run is over, whenever the model is another than was said.
        """
        with self.exchange.lock:
            if self.worker.finished and self._finished_at is None:
                self._finished_at = time.monotonic()
            # A neighbour that is there and never answers must not keep the run from ending.
            self.worker.patient = (
                self._finished_at is None or time.monotonic() - self._finished_at < LINGER
            )
            steps, params = self.worker.steps, self.worker.trained.params
            last = self.worker.finished and self.worker.settled and params is not self._reported[1]
            if not last and steps - self._reported[0] < self._every:
                return
            outgoing, self._reported = self.worker.report(), (steps, params)
        self._post(outgoing)
