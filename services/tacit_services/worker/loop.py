"""The loop of every worker over MQTT: hear what has come, then do what its policy says, until the
run is over.

A worker is a mailbox, a session with its server and a policy: of an edge or a party (tasks.py), or
of a peer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from tacit.protocol import topics
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.worker.contract import LoopSettings, Worker
from tacit_services.worker.mailbox import Mailbox, Sign
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.session import Session, Standing, State

log = logging.getLogger("tacit.edge")
FAREWELL_SECONDS = 3.0  # how long the last account waits for its receipt


class Policy(Protocol):
    """What edges, parties and peers do each in their own way.

    The loop calls it in the worker's thread.
    """

    @property
    def subscriptions(self) -> list[str]:
        """Topics to hear beside the server's."""

    def takes(self, inbound: Inbound) -> bool:
        """Whether a message is for another thread of the worker's, which has it now.

        On the network thread.
        """

    def working(self, session: Session, connection: Connection) -> AbstractContextManager[None]:
        """What goes on beside the loop, from its beginning to its end."""

    def reconnected(self) -> None:
        """The connection is up, or back."""

    def idle(self, session: Session) -> bool:
        """Whether there is nothing to do before something comes."""

    def work(self, session: Session, stop: threading.Event) -> None:
        """Do what is to be done now; after the run's end, too, until `leaves`."""

    def leaves(self, session: Session) -> bool:
        """Whether nothing is left to do after the run's end."""

    def kept(self) -> bytes | None:
        """What the role must find again when it goes on after the message that is being said, if
        anything.
        """


class WorkerLoop:
    """Drives one role until Halt, `stop`, or a refusal."""

    def __init__(
        self, role: Worker, outbox: Outbox, settings: LoopSettings, mailbox: Mailbox, policy: Policy
    ) -> None:
        self.role, self.mailbox = role, mailbox
        self._outbox, self._settings, self._policy = outbox, settings, policy

    def subscriptions(self) -> list[str]:
        """The topics to hear."""
        run = self._settings.run_id
        return [
            topics.down_all(run, self.role.edge),
            topics.model(run),
            *self._policy.subscriptions,
        ]

    def receive(self, inbound: Inbound) -> None:
        """From the network thread."""
        if not self._policy.takes(inbound):
            self.mailbox.put(inbound)

    def run(
        self, connection: Connection, stop: threading.Event, present: Callable[[str], None]
    ) -> str:
        """Serve; returns why it ended. `present` publishes how the worker stands.

        Raises PrivacyError.
        """
        role, policy = self.role, self._policy
        session = Session(role, self._outbox, self._settings, connection, present, policy.kept)
        with policy.working(session, connection):
            while not stop.is_set() and not role.halted:
                self._hear(session)
                policy.work(session, stop)
            if role.halted and session.standing is not Standing.RETIRED:
                self._last_account(session)
            while role.halted and not stop.is_set() and not policy.leaves(session):
                self._hear(session)
                policy.work(session, stop)
        return role.halted or "stopped"

    def _hear(self, session: Session) -> None:
        for item in self.mailbox.take(wait=self._policy.idle(session)):
            if isinstance(item, Inbound):
                session.hear(item)
            elif item is Sign.CONNECTED:
                session.reconnected()
                self._policy.reconnected()

    def _last_account(self, session: Session) -> None:
        """Say once more what has been spent.

        A push that came too late is not in the model, but it was released.
        """
        session.abandon()
        session.greet()
        deadline = time.monotonic() + FAREWELL_SECONDS
        while session.state is State.UNRECEIPTED and time.monotonic() < deadline:
            self._hear(session)
