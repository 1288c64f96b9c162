"""The policy of a worker that is given tasks: an edge of a star, or a party of a vertical run."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from tacit.protocol.messages import GlobalModel, Retired
from tacit_services.transport.mqtt import Inbound
from tacit_services.worker.computing import Computing
from tacit_services.worker.contract import BrokerConnection, LoopSettings, Worker
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.mailbox import Mailbox
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.release_delay import ReleaseDelay, no_delay
from tacit_services.worker.session import Session, Standing, State

log = logging.getLogger("tacit.edge")
COMPLAINT_SECONDS = 30.0  # between two lines of log on models that are refused


def nothing_kept() -> bytes | None:
    """Return nothing: an edge's tasks need no state of one another."""
    return None


class Tasks:
    """The policy of a worker that computes the newest task, and asks for one where none comes.

    A task that the owner's policy forbids is refused.
    """

    def __init__(
        self,
        role: Worker,
        computing: Computing,
        role_state: Callable[[], bytes | None],
        delay: ReleaseDelay,
        *,
        serves: bool,
        look_delay: ReleaseDelay | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """delay: for which pushes are held back. look_delay: answers to looks.

        serves: whether tasks are worked on after the run's end as well, until the budget is spent.
        """
        self._role = role
        self._computing = computing
        self.role_state = role_state
        self._serves = serves
        self._delay = delay
        self._look_delay = look_delay or no_delay()
        self._clock = clock
        self._complained_at = -math.inf

    @property
    def subscriptions(self) -> list[str]:
        """No topics: the server sends all that is needed."""
        return []

    def takes(self, inbound: Inbound) -> bool:
        """Return False: there is no other thread."""
        return False

    def working(
        self, session: Session, connection: BrokerConnection
    ) -> AbstractContextManager[None]:
        """Return a context in which nothing runs beside the loop."""
        return nullcontext()

    def reconnected(self) -> None:
        """Do nothing: the session does all."""

    def idle(self, session: Session) -> bool:
        """Return whether there is no task to work on."""
        return session.standing is Standing.RETIRED or session.state is not State.TASK_HERE

    def work(self, session: Session, stop: threading.Event) -> None:
        """Do what the session's state asks for."""
        match session.state:
            case State.UNRECEIPTED:
                session.send_when_due()
            case _ if session.standing is Standing.RETIRED:
                pass  # nothing more to say; wait for Halt
            case State.TASK_HERE:
                self._step(session, stop)
            case State.UNKNOWN | State.OVERDUE if not self._role.halted:
                session.request_task()

    def leaves(self, session: Session) -> bool:
        """Return whether the run is over and the last message has its receipt."""
        said_all = session.standing is Standing.RETIRED and session.state is not State.UNRECEIPTED
        return not self._serves or said_all

    def _step(self, session: Session, stop: threading.Event) -> None:
        role = self._role
        task = session.take_task()
        refusals = role.refusals
        look = isinstance(task, GlobalModel) and task.look > 0
        delay = self._look_delay if look else self._delay
        arrival = delay.starting(session.task_came)
        steps = role.held_steps(task)
        with self._computing.turn(stop):
            outgoing = role.on_message(task)
        del task  # a large model is not held while its update is stored and sent
        if role.refusals > refusals:
            self._refuse(session)
        elif any(isinstance(out.message, Retired) for out in outgoing):
            session.retire(outgoing)
        else:
            if session.standing is Standing.REFUSING:
                log.info("%s works again: a model that its policy allows", role.edge)
            session.set_standing(Standing.ONLINE)
            session.post(outgoing, lambda: self._hold(delay, arrival, steps, stop))

    def _hold(self, delay: ReleaseDelay, arrival: float, steps: int, stop: threading.Event) -> None:
        late = delay.late
        delay.hold(arrival, steps, stop)
        now = delay.late
        if now > late and not now & (now - 1):  # the 1st, 2nd, 4th, 8th, …
            line = "%s: %d pushes were late so far, with a delay of %.1f ms"
            log.info(line, self._role.edge, now, 1000 * delay.seconds)

    def _refuse(self, session: Session) -> None:
        """Say that a model is refused.

        Presence and a Hello say so at once, then every Hello that asks for a model, after
        `patience`.
        """
        role = self._role
        if self._clock() - self._complained_at >= COMPLAINT_SECONDS:
            self._complained_at = self._clock()
            facts = {"edge": role.edge}
            log.warning(
                "%s refuses a model (its %d.): %s",
                role.edge,
                role.refusals,
                role.refusal,
                extra=facts,
            )
        if session.standing is not Standing.REFUSING:  # only then: the same model answers
            session.set_standing(Standing.REFUSING)
            session.send_hello()


def task_loop(
    role: Worker,
    outbox: Outbox,
    settings: LoopSettings,
    turns: CpuTurns,
    role_state: Callable[[], bytes | None] = nothing_kept,
    delay: ReleaseDelay | None = None,
    look_delay: ReleaseDelay | None = None,
    *,
    serves: bool = False,
) -> WorkerLoop:
    """Return the loop of `role`, whose state, if it has one, is `role_state` with every message."""
    computing = Computing(turns, settings.slowdown)
    pushes = delay or no_delay()
    policy = Tasks(role, computing, role_state, pushes, serves=serves, look_delay=look_delay)
    return WorkerLoop(role, outbox, settings, Mailbox(), policy)
