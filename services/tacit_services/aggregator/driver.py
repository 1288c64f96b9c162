"""The server side of a run over MQTT: it takes the run over, and drives it to its end.

It lets messages in, keeps time and snapshots, and says the end. What happens to a message is in
ingest/admission.py.
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
from tacit_services.aggregator.ingest.admission import Admission
from tacit_services.aggregator.ingest.guard import Guard
from tacit_services.aggregator.ingest.presence import all_but, everybody
from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.aggregator.ingest.staging import Staging
from tacit_services.aggregator.ingest.trusted import TrustedNoise
from tacit_services.aggregator.reading import Health, Load, RunReading, read, state_of
from tacit_services.aggregator.run_journal import RunJournal
from tacit_services.aggregator.task_scheduler import TaskScheduler
from tacit_services.transport.inbox import Inbox
from tacit_services.transport.rate_limit import RateLimiter

log = logging.getLogger("tacit.driver")
FAREWELL_SECONDS = 5.0
ANNOUNCE_SECONDS = 60.0  # between two announcements that nothing but a snapshot has caused


class ServerDriver:
    """Runs one server role, in one thread; another may read what `lock` protects."""

    def __init__(
        self,
        journal: RunJournal,
        admission: Admission,
        downlink: Downlink,
        link: Link,
        inbox: Inbox,
        *,
        limiter: RateLimiter,
        reassembly: Reassembly,
        staging: Staging,
        guard: Guard,
        scheduler: TaskScheduler,
        presence: dict[str, str],
        noise: TrustedNoise | None,
        names: Set[str],
    ) -> None:
        """names: of the run's edges; messages of other senders are ignored."""
        self.journal, self.admission, self.inbox = journal, admission, inbox
        self.limiter, self.reassembly, self.guard = limiter, reassembly, guard
        self._downlink, self._link, self._scheduler, self._noise = downlink, link, scheduler, noise
        self._staging = staging
        self.run_id = journal.run_id
        self.role, self.lock, self.counts = journal.role, journal.lock, journal.counts
        self.presence, self.names = presence, names
        self.epoch = 0  # the store's; 0: the run has not been taken over yet
        self.store_up = True
        self._said_accused: set[str] = set()
        self._said_discounted: frozenset[str] = frozenset()
        self._announced = -math.inf
        self._timer: tuple[Timer, float] | None = None  # what the role waits for, and until when

    def reading(self) -> RunReading:
        """The run now, for any thread."""
        presence = dict(self.presence)
        with self.lock:
            return read(
                self.role,
                self.counts,
                presence,
                run_id=self.run_id,
                fingerprint=self.journal.fingerprint,
                quarantined=self.guard.quarantined(),
                needed=self._scheduler.needed,
                health=self.health(),
                load=self._load(),
            )

    def health(self) -> Health:
        """Whether the run can go on, without waiting for a lock."""
        link = self._link
        return Health(
            recovered=self.epoch > 0,
            over=self.role.halted,
            store_up=self.store_up,
            broker_up=link.up,
            broker_refuses=bool(link.refused),
            reconnects=link.reconnects,
        )

    def _load(self) -> Load:
        journal, latency = self.journal, self.admission.latency
        return Load(
            entries=journal.cursor - journal.saved,
            size=journal.held_bytes,
            snapshot_age=time.monotonic() - journal.saved_at,
            latencies=latency.buckets(),
            latency=latency.total,
            dropped=self.limiter.dropped,
            shut_out=len(self.limiter.shut()),
        )

    def subscriptions(self) -> list[str]:
        """Return the topics to subscribe to now; for the driver's thread."""
        return all_but(self.run_id, self.names, self.limiter.shut())

    # -- the loop ----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Take the run over, as often as necessary. Nothing is sent.

        Raises Fenced, ServiceError, WireError.
        """
        epoch = self.journal.take_over()
        self.admission.resume()
        self._scheduler.resume()
        self.epoch = epoch  # last: REST answers from here on

    def run(self, stop: threading.Event, idle: Callable[[], None]) -> None:
        """Serve until the role has halted or `stop` is set, and call `idle` every 0.25 s."""
        self._serve(stop, idle, lambda: self.role.halted)

    def linger(self, stop: threading.Event, idle: Callable[[], None]) -> None:
        """Go on serving after the run's end, until `stop` is set.

        A vertical role still answers questions.
        """
        self._serve(stop, idle, lambda: False)

    def _serve(
        self, stop: threading.Event, idle: Callable[[], None], over: Callable[[], bool]
    ) -> None:
        self.announce()
        while not stop.is_set() and not over():
            try:
                self.turn()
                idle()
            except (Fenced, BrokerRefuses):
                raise
            except ServiceError as error:
                self._wait_for_store(error, stop)
        self._last_save(stop)

    def turn(self) -> None:
        """Wait a little for messages, let all happen to them, and do what is due."""
        self.admission.accept()
        self.admission.serve_waiting()
        self._keep_time()
        self._say_accused()
        for edge in self.reassembly.expire():
            self._staging.forget(edge)
        if self.journal.save_due():
            self.journal.begin_save()
        if self.journal.saved_more() and time.monotonic() - self._announced >= ANNOUNCE_SECONDS:
            self.announce()
        self._link.connection.listen(self.subscriptions())

    def _keep_time(self) -> None:
        """Start the role's timer, or tell it, through the journal, that it has run out."""
        timer, now = None if self.role.halted else self.role.timer(), time.monotonic()
        if timer is None:
            self._timer = None
        elif self._timer is None or self._timer[0] != timer:
            self._timer = (timer, now + timer.seconds)
        elif now >= self._timer[1]:
            self._timer = None
            deadline = Deadline(timer.number)
            entry = entries.deadline(self.run_id, timer.number)
            self._reply(self.journal.enter(entry, deadline) or ())

    def _say_accused(self) -> None:
        """Log whom the updates' sums accuse, or find to work against the others, once."""
        accused = self.role.accused
        for edge in accused.keys() - self._said_accused:
            log.warning("%s is in quarantine: %s", edge, accused[edge])
        self._said_accused = set(accused)
        discounted = self.role.discounted
        for edge in discounted - self._said_discounted:
            log.warning(
                "%s works against the other edges, and counts for little while it does: it lies, "
                "or has other data",
                edge,
            )
        self._said_discounted = discounted

    def _wait_for_store(self, error: ServiceError, stop: threading.Event) -> None:
        """Take the store over again once it is back.

        What it kept although it did not answer is folded then.
        """
        log.warning("store lost: %s; edges are told to wait", error)
        self.store_up = False
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
            self.store_up = True
            self.announce()
            return

    def save(self) -> None:
        """Bring the snapshot up to date, and say how the run stands where that was needed."""
        if self.journal.save():
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
        self._announced = time.monotonic()
        self._downlink.announce(self.epoch, state_of(self.role), self.role.global_model())

    # -- control -----------------------------------------------------------------------------------

    def halt(self, reason: str) -> bool:
        """End the run: a journal entry like any other, so that a replay ends at the same place.

        False: the journal is full for now. Driver thread only. Raises ServiceError.
        """
        if not self.role.halted:
            version = self.role.version
            self.journal.enter(entries.halt(self.run_id, version, reason), Halt(version, reason))
        return self.role.halted

    def release(self, edge: str) -> bool:
        """End the quarantine of `edge`; where the updates' sums accuse it, by a journal entry.

        False: the journal is full for now. Driver thread only. Raises ServiceError.
        """
        if edge in self.role.accused and not self.role.halted:
            outgoing = self.journal.enter(entries.release(self.run_id, edge), LiftQuarantine(edge))
            if outgoing is None:
                return False
            self._reply(outgoing)
        self.guard.release(edge)
        return True

    def _reply(self, outgoing: Iterable[Outgoing]) -> None:
        for out in outgoing:
            if out.to != EVERYONE:
                self._downlink.reply(out)

    def ask(self, request: Request) -> bool:
        """Ask a vertical run's parties for embeddings, after the end.

        False: the journal is full for now. For the driver's thread.
        """
        outgoing = self.journal.enter(entries.request(self.run_id, request), request)
        for out in outgoing or ():
            self._downlink.reply(out)
        return outgoing is not None

    def ask_again(self, edges: Set[str]) -> None:
        """Ask the same parties again for what they have not answered. Driver thread."""
        for out in [out for edge in sorted(edges) for out in self.role.answer(edge)]:
            self._downlink.reply(out)

    def farewell(self, stop: threading.Event) -> None:
        """Tell every edge that the run is over, and hear its last account of what it has spent.

        This takes FAREWELL_SECONDS at most. A push that was under way when the run ended is not in
        the model, but it was released, and so it counts.
        """
        self._staging.close()
        before = dict(self.journal.last_seqs)
        connection = self._link.connection
        # Last accounts are taken from whoever was shut out, too.
        connection.listen(everybody(self.run_id))
        for edge in list(self.role.edges):
            self._downlink.reply(Outgoing(edge, Halt(self.role.version, self.role.halt_reason)))
        self.announce()
        deadline = time.monotonic() + FAREWELL_SECONDS
        while time.monotonic() < deadline and not stop.is_set() and self._silent_since(before):
            self.admission.accept()
        self.save()

    def _silent_since(self, before: dict[str, int]) -> set[str]:
        """Return the connected edges of which nothing was accepted since.

        before: the last numbers of all edges at that time.
        """
        there = {edge for edge, state in self.presence.items() if state in ("online", "refusing")}
        return {
            edge
            for edge in there & self.role.edges.keys()
            if self.journal.last_seqs.get(edge, 0) <= before.get(edge, 0)
        }

    def close(self) -> None:
        """Close what it has opened, but for the store and the connection; idempotent."""
        self._staging.close()
        self.journal.close()
        if self._noise is not None:
            self._noise.close()
