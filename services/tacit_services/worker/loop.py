"""The loop of every worker over MQTT: take in messages, work by its policy, until the end.

A worker is a mailbox, a session with its server, and a policy: of an edge or a party (tasks.py), or
of a peer. A training step goes tasks.py → role.on_message → the algorithm's Edge.work → Releaser
(charges the ledger, adds noise) → PrivateSum.compute (draws a batch, takes gradients, clips them).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from tacit.protocol import topics
from tacit_services.transport.mqtt import Inbound
from tacit_services.worker.contract import BrokerConnection, LoopSettings, Worker
from tacit_services.worker.mailbox import Mailbox, Sign
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.session import Session, Standing, State

log = logging.getLogger("tacit.edge")
FAREWELL_SECONDS = 3.0  # the longest wait for the receipt of the last account


class WorkPolicy(Protocol):
    """The part of the loop that differs between edges, parties and peers.

    The loop calls it in the worker's thread, but for `takes`.
    """

    @property
    def subscriptions(self) -> list[str]:
        """The topics to subscribe to beside the server's."""

    def takes(self, inbound: Inbound) -> bool:
        """Hand a message to another thread of the worker, if it is for one; True if so.

        Called on the network thread.
        """

    def working(
        self, session: Session, connection: BrokerConnection
    ) -> AbstractContextManager[None]:
        """Return a context of what runs beside the loop, from its beginning to its end."""

    def reconnected(self) -> None:
        """Handle a connection that is up, for the first time or again."""

    def idle(self, session: Session) -> bool:
        """Return whether there is nothing to do before a message comes."""

    def work(self, session: Session, stop: threading.Event) -> None:
        """Do the work that is due now; after the run's end too, until `leaves` is true."""

    def leaves(self, session: Session) -> bool:
        """Return whether nothing is left to do after the run's end."""

    def role_state(self) -> bytes | None:
        """Return the role's state to store with the message being sent; None: it needs none.

        A role that is restarted continues from it after that message.
        """


class WorkerLoop:
    """Run one role until Halt, `stop`, or a refusal."""

    def __init__(
        self,
        role: Worker,
        outbox: Outbox,
        settings: LoopSettings,
        mailbox: Mailbox,
        policy: WorkPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """uniform: draws the random part of a pause."""
        self.role = role
        self.mailbox = mailbox
        self._outbox = outbox
        self._settings = settings
        self._policy = policy
        self._clock = clock
        self._uniform = uniform

    def subscriptions(self) -> list[str]:
        """Return the topics to subscribe to."""
        run = self._settings.run_id
        return [
            topics.down_all(run, self.role.edge),
            topics.model(run),
            *self._policy.subscriptions,
        ]

    def receive(self, inbound: Inbound) -> None:
        """Take in a message; called on the network thread."""
        if not self._policy.takes(inbound):
            self.mailbox.put(inbound)

    def run(
        self, connection: BrokerConnection, stop: threading.Event, present: Callable[[str], None]
    ) -> str:
        """Work until the end, and return why it ended. present: publishes the worker's standing.

        Raises PrivacyError, and BrokerRefuses.
        """
        role = self.role
        policy = self._policy
        session = Session(
            role,
            self._outbox,
            self._settings,
            connection,
            present,
            policy.role_state,
            clock=self._clock,
            uniform=self._uniform,
        )
        with policy.working(session, connection):
            while not stop.is_set() and not role.halted:
                connection.check()
                self._hear(session)
                policy.work(session, stop)
            if role.halted and session.standing is not Standing.RETIRED:
                self._last_account(session)
            while role.halted and not stop.is_set() and not policy.leaves(session):
                self._hear(session)
                policy.work(session, stop)
        return role.halt_reason or "stopped"

    def _hear(self, session: Session) -> None:
        for item in self.mailbox.take(wait=self._policy.idle(session)):
            if isinstance(item, Inbound):
                session.receive(item)
            elif item is Sign.CONNECTED:
                session.reconnected()
                self._policy.reconnected()

    def _last_account(self, session: Session) -> None:
        """Report once more what has been spent.

        A push that came too late is not in the model, but it was released.
        """
        session.abandon()
        session.send_hello()
        deadline = self._clock() + FAREWELL_SECONDS
        while session.state is State.UNRECEIPTED and self._clock() < deadline:
            self._hear(session)
