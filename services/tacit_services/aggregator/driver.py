"""The server side of a run over MQTT: it takes the run over, and drives it to its end.

It keeps time and snapshots, and announces how the run stands. What happens to a message is in
pipeline.py.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Set

from tacit.errors import BrokerRefuses, Fenced, ServiceError
from tacit.protocol.messages import EVERYONE, Deadline, Halt, LiftQuarantine, Outgoing, Timer
from tacit.protocol.vertical import Request
from tacit_services.aggregator import entries
from tacit_services.aggregator.broker_link import Link
from tacit_services.aggregator.downlink import Downlink
from tacit_services.aggregator.ingest.presence import everybody
from tacit_services.aggregator.pipeline import Pipeline
from tacit_services.aggregator.reading import state_of
from tacit_services.aggregator.run import Run

log = logging.getLogger("tacit.driver")
FAREWELL_SECONDS = 5.0
ANNOUNCE_SECONDS = 60.0  # between two announcements that nothing but a snapshot has caused


class ServerDriver:
    """The driver of one server role, in one thread."""

    def __init__(
        self,
        run: Run,
        pipeline: Pipeline,
        downlink: Downlink,
        link: Link,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._pipeline = pipeline
        self._downlink = downlink
        self._link = link
        self._clock = clock
        self._journal = run.journal
        self._role = run.role
        self._accused_logged: set[str] = set()
        self._discounted_logged: frozenset[str] = frozenset()
        self._announced = -math.inf
        self._timer: tuple[Timer, float] | None = None  # what the role waits for, and until when

    # -- the loop ----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Take the run over, as often as necessary. Nothing is sent.

        Raises Fenced, ServiceError, WireError.
        """
        epoch = self._journal.take_over()
        self._pipeline.resume()
        self._run.note_taken_over(epoch)

    def train(
        self,
        stop: threading.Event,
        idle: Callable[[], None],
        folded: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until the role has halted or `stop` is set, and call `idle` every 0.25 s.

        folded: is called after every batch of messages, too; it must not use the journal.
        """
        self._serve(stop, idle, lambda: self._role.halted, folded)

    def linger(self, stop: threading.Event, idle: Callable[[], None]) -> None:
        """Go on serving after the run's end, until `stop` is set.

        A vertical role still answers questions.
        """
        self._serve(stop, idle, lambda: False, lambda: None)

    def _serve(
        self,
        stop: threading.Event,
        idle: Callable[[], None],
        over: Callable[[], bool],
        folded: Callable[[], None],
    ) -> None:
        self.announce()
        while not stop.is_set() and not over():
            try:
                self.turn(folded)
                idle()
            except (Fenced, BrokerRefuses):
                raise
            except ServiceError as error:
                self._wait_for_store(error, stop)
        self._last_save(stop)

    def turn(self, folded: Callable[[], None] = lambda: None) -> None:
        """Wait a little for messages, let all happen to them, and do what is due.

        folded: is called after every batch of messages.
        """
        self._pipeline.accept(folded=folded)
        self._pipeline.serve_waiting()
        self._keep_time()
        self._log_accused()
        self._pipeline.forget_old()
        if self._journal.save_due():
            self._journal.begin_save()
        if self._journal.saved_more() and self._clock() - self._announced >= ANNOUNCE_SECONDS:
            self.announce()
        self._link.connection.listen(self._run.subscriptions())

    def _keep_time(self) -> None:
        """Start the role's timer, or tell it, through the journal, that it has run out."""
        if self._role.halted:
            timer = None
        else:
            timer = self._role.awaited()
        now = self._clock()
        if timer is None:
            self._timer = None
        elif self._timer is None or self._timer[0] != timer:
            self._timer = (timer, now + timer.seconds)
        elif now >= self._timer[1]:
            self._run_out(timer)

    def _run_out(self, timer: Timer) -> bool:
        """Tell the role that its timer has run out; False: the journal is full for now."""
        self._timer = None
        entry = entries.deadline(self._run.run_id, timer.number)
        outgoing = self._journal.enter(entry, Deadline(timer.number))
        self._reply(outgoing or ())
        return outgoing is not None

    def _log_accused(self) -> None:
        """Log once which edges the updates' sums accuse, or find to work against the others."""
        accused = self._role.accused
        for edge in accused.keys() - self._accused_logged:
            log.warning("%s is in quarantine: %s", edge, accused[edge])
        self._accused_logged = set(accused)
        discounted = self._role.discounted
        for edge in discounted - self._discounted_logged:
            log.warning(
                "%s works against the other edges, and counts for little while it does: it lies, "
                "or has other data",
                edge,
            )
        self._discounted_logged = discounted

    def _wait_for_store(self, error: ServiceError, stop: threading.Event) -> None:
        """Take the store over again once it is back.

        What it kept although it did not answer is folded then.
        """
        log.warning("store lost: %s; edges are told to wait", error)
        self._run.note_store(up=False)
        delay = 0.2
        while not stop.wait(delay):
            delay = min(delay * 2, 5.0)
            try:
                self.recover()
            except Fenced:
                raise
            except ServiceError:
                continue
            log.info("store back")
            self._run.note_store(up=True)
            self.announce()
            return

    def save(self) -> None:
        """Bring the snapshot up to date, and log the state of the run where that was needed."""
        if self._journal.save():
            self.announce()

    def _last_save(self, stop: threading.Event) -> None:
        while True:
            try:
                return self.save()
            except Fenced:
                raise
            except ServiceError as error:
                if stop.is_set():  # nothing is lost: the journal has what the snapshot has not
                    raise
                self._wait_for_store(error, stop)

    def announce(self) -> None:
        """Publish, retained, how the run stands.

        Done at the start, after a reconnection, at the end, and with a snapshot once in a while: a
        broker sends it to every edge.
        """
        self._announced = self._clock()
        self._downlink.announce(self._run.epoch, state_of(self._role), self._role.global_model())

    # -- control -----------------------------------------------------------------------------------

    def halt(self, reason: str) -> bool:
        """End the run: a journal entry like any other, so that a replay ends at the same place.

        False: the journal is full for now. Driver thread only. Raises ServiceError.
        """
        if not self._role.halted:
            version = self._role.version
            self._journal.enter(
                entries.halt(self._run.run_id, version, reason), Halt(version, reason)
            )
        return self._role.halted

    def release(self, edge: str) -> bool:
        """End the quarantine of `edge`; where the updates' sums accuse it, by a journal entry.

        False: the journal is full for now. Driver thread only. Raises ServiceError.
        """
        if edge in self._role.accused and not self._role.halted:
            outgoing = self._journal.enter(
                entries.release(self._run.run_id, edge), LiftQuarantine(edge)
            )
            if outgoing is None:
                return False
            self._reply(outgoing)
        self._run.guard.release(edge)
        return True

    def begin(self) -> bool:
        """Begin the run with the edges that are there, where it still waits for more.

        Of rounds it is a journal entry, the end of the wait for the first. Else nothing needs to be
        kept: a model goes out earlier, and it is the same model. False: the journal is full for
        now. Driver thread only. Raises ServiceError.
        """
        self._run.scheduler.begin()
        timer = self._role.awaited()
        if self._role.waits_to_begin and timer is not None and not self._role.halted:
            return self._run_out(timer)
        return True

    def _reply(self, outgoing: Iterable[Outgoing]) -> None:
        for out in outgoing:
            if out.to != EVERYONE:
                self._downlink.reply(out)

    def ask(self, request: Request) -> bool:
        """Ask a vertical run's parties for embeddings, after the end.

        False: the journal is full for now. For the driver's thread.
        """
        outgoing = self._journal.enter(entries.request(self._run.run_id, request), request)
        for out in outgoing or ():
            self._downlink.reply(out)
        return outgoing is not None

    def ask_again(self, edges: Set[str]) -> None:
        """Ask the same parties again for what they have not answered. Driver thread."""
        for out in [out for edge in sorted(edges) for out in self._role.answer(edge)]:
            self._downlink.reply(out)

    def farewell(self, stop: threading.Event) -> None:
        """Tell every edge that the run is over, and hear its last account of what it has spent.

        This takes FAREWELL_SECONDS at most, once the broker is there. What is said while it is away
        is dropped when the connection is closed, and the edges would wait for ever. A push that was
        under way when the run ended is not in the model, but it was released, and so it counts.
        """
        self._wait_for_broker(stop)
        self._pipeline.end_staging()
        before = dict(self._journal.last_seqs)
        connection = self._link.connection
        # Last accounts are taken from whoever was shut out, too.
        connection.listen(everybody(self._run.run_id))
        for edge in list(self._role.edges):
            self._downlink.reply(Outgoing(edge, Halt(self._role.version, self._role.halt_reason)))
        self.announce()
        deadline = self._clock() + FAREWELL_SECONDS
        while self._clock() < deadline and not stop.is_set() and self._silent_since(before):
            self._accept(stop)
        self._wait_for_broker(stop)
        self._last_save(stop)

    def _wait_for_broker(self, stop: threading.Event) -> None:
        while not self._link.up and not stop.is_set():
            self._accept(stop)

    def _accept(self, stop: threading.Event) -> None:
        try:
            self._pipeline.accept()
        except (Fenced, BrokerRefuses):
            raise
        except ServiceError as error:
            self._wait_for_store(error, stop)

    def _silent_since(self, before: dict[str, int]) -> set[str]:
        """Return the connected edges of which nothing was accepted since.

        before: the last numbers of all edges at that time.
        """
        last = self._journal.last_seqs
        return {
            edge
            for edge in self._run.edges_with("online", "refusing")
            if last.get(edge, 0) <= before.get(edge, 0)
        }

    def close(self) -> None:
        """Close what it works with, but for the store and the connection; idempotent."""
        self._pipeline.close()
        self._journal.close()
