"""One run as its aggregator has it: the role, the journal, and what is known of the edges now.

The driver and the pipeline change it, in one thread. Any other thread takes a `reading` of it, and
nothing else. A process may have several runs: they share no object.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Set

from tacit_services.aggregator.broker_link import Link
from tacit_services.aggregator.ingest import presence
from tacit_services.aggregator.ingest.guard import UpdateGuard
from tacit_services.aggregator.reading import Health, Load, RunReading, read
from tacit_services.aggregator.run_journal import RunJournal
from tacit_services.aggregator.task_scheduler import TaskScheduler
from tacit_services.transport.flood_limit import RateLimiter
from tacit_services.transport.mqtt import Inbound

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Observations per bucket (upper bounds SECONDS, then infinity), and their sum.

    One thread observes; any may read.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._counts = [0] * (len(SECONDS) + 1)

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound, observations up to it), as Prometheus wants them."""
        counts = list(self._counts)
        rows = []
        upto = 0
        for bound, count in zip([*SECONDS, float("inf")], counts, strict=True):
            upto += count
            rows.append(("+Inf" if bound == float("inf") else repr(bound), float(upto)))
        return rows


class Run:
    """The state of one run, which the driver and the pipeline work on.

    role, lock, counts: the journal's. The lock is held while the role changes. names: of the run's
    edges. Messages of other senders are ignored. presence: the newest word of each edge. vetoes:
    edges whose policy forbids the run, with the key. guard, limiter, scheduler: which edges are
    heard, and which get a task. latency: from taking a message in hand to having it in the model.
    epoch: the store's, 0 if the run has not been taken over yet.
    """

    def __init__(
        self,
        journal: RunJournal,
        link: Link,
        *,
        names: Set[str],
        presence: dict[str, str],
        guard: UpdateGuard,
        limiter: RateLimiter,
        scheduler: TaskScheduler,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.journal = journal
        self._link = link
        self._clock = clock
        self.run_id = journal.run_id
        self.role = journal.role
        self.lock = journal.lock
        self.counts = journal.counts
        self.names = names
        self.presence = presence
        self.vetoes: dict[str, str] = {}
        self.guard = guard
        self.limiter = limiter
        self.scheduler = scheduler
        self.latency = Histogram()
        self.epoch = 0
        self.store_up = True

    def reading(self) -> RunReading:
        """Return the run now, for any thread."""
        presence = dict(self.presence)
        with self.lock:
            return read(
                self.role,
                self.counts,
                presence,
                vetoes=dict(self.vetoes),
                run_id=self.run_id,
                fingerprint=self.journal.fingerprint,
                quarantined=self.guard.quarantined(),
                needed=self.scheduler.needed,
                health=self.health(),
                load=self._load(),
            )

    def health(self) -> Health:
        """Return whether the run can go on, without waiting for a lock."""
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
        journal = self.journal
        return Load(
            entries=journal.cursor - journal.saved,
            size=journal.held_bytes,
            snapshot_age=self._clock() - journal.saved_at,
            latencies=self.latency.buckets(),
            latency=self.latency.total,
            dropped=self.limiter.dropped,
            shut_out=len(self.limiter.shut()),
        )

    # -- the driver's thread -----------------------------------------------------------------------

    def note_taken_over(self, epoch: int) -> None:
        """Note that the run was read back from the store: REST answers from here on."""
        self.epoch = epoch

    def note_store(self, *, up: bool) -> None:
        """Note that the store was lost, or is back."""
        self.store_up = up

    def note_presence(self, inbound: Inbound) -> None:
        """Take an edge's word about itself."""
        presence.note(self.presence, self.vetoes, self.names, inbound)

    def subscriptions(self) -> list[str]:
        """Return the topics to subscribe to now."""
        return presence.all_but(self.run_id, self.names, self.limiter.shut())

    def edges_with(self, *states: str) -> set[str]:
        """Return the edges that have sent Hello and whose newest word is among `states`."""
        return {edge for edge in self.role.edges if self.presence.get(edge) in states}
