"""The computing side of a peer: step after step, reports now and then, an orderly end."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from tacit.algorithms.gossip.worker import GossipWorker
from tacit.errors import BudgetSpent
from tacit.privacy.release import Released
from tacit.protocol.messages import Outgoing
from tacit_services.peer.exchange import Exchange
from tacit_services.peer.peer_state import PeerState
from tacit_services.transport.mqtt import Inbound
from tacit_services.worker.computing import Computing
from tacit_services.worker.contract import BrokerConnection, LoopSettings
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.mailbox import Mailbox
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.release_delay import ReleaseDelay, no_delay
from tacit_services.worker.session import Session, Standing, State

log = logging.getLogger("tacit.peer")
QUIET = 1.0  # seconds without a word from the others after which a peer that is settled may leave
LINGER = 15.0  # seconds that it waits for that, at most
# seconds from the beginning of a step, at most, until the next if no other peer has been heard
# meanwhile
PACE = 0.1
RELAY = 1.0  # seconds between two exchanges that a peer without budget proposes


class Peering:
    """The policy of a peer, which works without being told to.

    The observer may be away: nothing waits for it.
    """

    def __init__(
        self,
        role: GossipWorker,
        exchange: Exchange,
        computing: Computing,
        every: int,
        delay: ReleaseDelay,
    ) -> None:
        """`every`: own steps between two reports. `delay`: what gradients are held back for."""
        self._role = role
        self._exchange = exchange
        self._computing = computing
        self._every = every
        self._delay = delay
        self._reported: tuple[int, Tensor | None] = (role.steps, None)
        self._relayed_at = self._stepped_at = -math.inf
        self._heard = 0  # messages of other peers when the latest step began
        self._finished_at: float | None = None  # when the run was found to be over
        self._leave_at: float | None = None  # when others have been waited for long enough
        self._idle = True

    @property
    def subscriptions(self) -> list[str]:
        """The topics of peers' messages and presence."""
        return self._exchange.subscriptions

    def takes(self, inbound: Inbound) -> bool:
        """Hand a peer's message to the exchange's thread; True if it was one."""
        of_peers = inbound.topic.split("/")[3:4] in (["peer"], ["presence"], ["steps"])
        if of_peers:
            self._exchange.inbox.put(inbound)
        return of_peers

    @contextmanager
    def working(self, session: Session, connection: BrokerConnection) -> Iterator[None]:
        """Hear and answer other peers until the end of the block, and greet the observer."""
        with self._exchange.serving(connection):
            session.send_hello()
            yield

    def reconnected(self) -> None:
        """Send again to other peers what may have been lost."""
        self._exchange.reconnected()

    def idle(self, session: Session) -> bool:
        """Return whether there is nothing to do before others are heard."""
        return self._idle or self._role.halted

    def work(self, session: Session, stop: threading.Event) -> None:
        """Take a step, or do what is due instead of it; nothing after the run's end."""
        if self._role.halted:
            return
        if self._exchange.failure is not None:
            raise self._exchange.failure
        match session.state:
            case State.UNRECEIPTED:
                session.send_when_due()
            case State.UNKNOWN:
                session.send_hello()
            case _:
                self._report_when_due(session)
        if session.standing is Standing.RETIRED:
            self._relay()
        else:
            self._advance(session, stop)

    def leaves(self, session: Session) -> bool:
        """Return whether no peer waits for this one's answers any more, or has waited too long."""
        if self._leave_at is None:
            self._leave_at = time.monotonic() + LINGER
        with self._exchange.lock:
            settled = self._role.settled
        quiet = time.monotonic() - self._exchange.heard_at > QUIET
        return (settled and quiet) or time.monotonic() >= self._leave_at

    def role_state(self) -> bytes | None:
        """Return nothing: a peer's state is in a file of its own, which the exchange writes."""
        return None

    # -- steps and reports -------------------------------------------------------------------------

    def _advance(self, session: Session, stop: threading.Event) -> None:
        self._idle = self._early()
        if self._idle:
            return
        self._delay.starting(time.monotonic())  # measured before the first step
        read: list[Tensor] = []
        self._heard = self._exchange.counts["heard"]
        self._stepped_at = time.monotonic()

        def begin() -> list[Outgoing]:
            params, outgoing = self._role.begin()
            read.extend([] if params is None else [params])
            return outgoing

        self._exchange.say(begin)
        self._idle = not read
        if self._idle:
            return
        began = time.monotonic()
        released = self._gradient(read[0], session, stop)
        self._delay.hold(began, 1, stop)
        if released is None:
            self._exchange.say(self._role.abandon)
        else:
            self._exchange.say(lambda: self._role.finish(released))

    def _early(self) -> bool:
        """Return whether the exchange of the latest step has still to come.

        Algorithm 1 has one in every step. Where a step is shorter than a message, peers that went
        on without would train models of their own, apart.
        """
        if self._role.waits or not self._role.here or self._exchange.counts["heard"] > self._heard:
            return False
        return time.monotonic() - self._stepped_at < PACE  # a longer step is never put off

    def _gradient(self, params: Tensor, session: Session, stop: threading.Event) -> Released | None:
        try:
            with self._computing.turn(stop):
                return self._role.gradient(params)
        except BudgetSpent as spent:
            session.retire(self._role.retire(str(spent)))
            return None

    def _relay(self) -> None:
        """Average without steps, as there is no budget for them.

        So what others learn still passes.
        """
        self._idle = True
        if time.monotonic() - self._relayed_at > RELAY and not self._role.finished:
            self._relayed_at = time.monotonic()
            self._exchange.say(self._role.propose)

    def _report_when_due(self, session: Session) -> None:
        """Report when `every` own steps have been taken since the last report.

        After the run's end, report whenever the model has changed since the last report.
        """
        role = self._role
        with self._exchange.lock:
            if role.finished and self._finished_at is None:
                self._finished_at = time.monotonic()
            # A connected neighbour that never answers must not keep the run from ending.
            role.patient = (
                self._finished_at is None or time.monotonic() - self._finished_at < LINGER
            )
            steps = role.steps
            params = role.trained.params
            last = role.finished and role.settled and params is not self._reported[1]
            if not last and steps - self._reported[0] < self._every:
                return
            outgoing = role.report()
            self._reported = (steps, params)
        session.post(outgoing)


def peer_loop(
    role: GossipWorker,
    outbox: Outbox,
    settings: LoopSettings,
    state: PeerState,
    every: int,
    turns: CpuTurns,
    delay: ReleaseDelay | None = None,
) -> WorkerLoop:
    """Return the loop of `role` with its durable `state`; `every`: steps between two reports."""
    mailbox = Mailbox()
    exchange = Exchange(
        role,
        state,
        settings.run_id,
        settings.schema,
        settings.chunk,
        settings.patience,
        mailbox.wake,
    )
    computing = Computing(turns, settings.slowdown)
    policy = Peering(role, exchange, computing, every, delay or no_delay())
    return WorkerLoop(role, outbox, settings, mailbox, policy)
