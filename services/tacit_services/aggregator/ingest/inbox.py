"""The queues of messages that have arrived and wait to be read: one for each edge, in turn.

What is said of edges' presence is no message of theirs: it is noted before the next are taken.

So an edge that sends more than others delays only itself. A queue has room for more than an honest
edge ever has under way. Messages beyond that are acknowledged to the broker and dropped, unread; an
edge that continues is shut out (rate_limit.py).
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Set
from dataclasses import replace

from tacit_services.aggregator.ingest.presence import WORD
from tacit_services.aggregator.ingest.rate_limit import RateLimiter
from tacit_services.transport.mqtt import Inbound
from tacit_services.transport.transfer import WINDOW

BATCH = 64  # messages that share one append; more arrive while it is being written
ROOM = 4 * WINDOW  # messages in one edge's queue: its window, copies of it, questions
ROOM_BYTES = 2 * WINDOW * (1 << 18)  # the most bytes in one edge's queue
TOTAL_BYTES = 1 << 28  # the most bytes in all queues; beyond it an edge has room for one message
STRANGERS = ""  # the name of the queue that all senders unknown to the run share
FEW = 16  # room in that queue: its messages are answered, so that an honest sender learns why


class Inbox:
    """The queues, filled by the network's thread and emptied by the driver's."""

    def __init__(
        self, limiter: RateLimiter, names: Set[str], note_presence: Callable[[Inbound], None]
    ) -> None:
        """names: the names of the run's edges. note_presence: notes one, in the driver's thread."""
        self._limiter, self._names, self._note_presence = limiter, names, note_presence
        self._presence: dict[str, Inbound] = {}  # the newest of each edge
        self._queues: dict[str, deque[Inbound]] = {}  # none is empty; the first is next
        self._bytes: Counter[str] = Counter()
        self._total = self._count = 0
        self._filled = threading.Condition()

    def __len__(self) -> int:
        return self._count + len(self._presence)

    def put(self, inbound: Inbound) -> None:
        """Queue a message, or acknowledge it to the broker and drop it.

        A message of an edge that already has one in its queue is acknowledged at once. The broker
        waits for few acknowledgements at a time, and one edge must not use them all up.
        """
        levels = inbound.topic.split("/", 5)
        kind, name = (levels[3], levels[4]) if len(levels) > 4 else ("", "")
        edge = name if name in self._names else STRANGERS
        size = len(inbound.payload)
        # Honest edges retain only their presence; the broker would deliver others again and again.
        if inbound.retained and kind != "presence":
            self._limiter.drop(edge)
            inbound.done()
            return
        if kind == "up" and len(levels) == 6 and not self._limiter.admits(edge, size):
            inbound.done()
            return
        if kind == "presence":
            self._put_presence(edge, inbound)
            return
        with self._filled:
            waits, room = edge in self._queues, self._has_room(edge, size)
            if room:
                self._append(edge, replace(inbound, done=_done) if waits else inbound)
        if not room:
            self._limiter.drop(edge)
        if waits or not room:
            inbound.done()

    def gather(self, seconds: float) -> list[Inbound]:
        """Wait up to `seconds` for a message; return up to BATCH, one of each edge in turn.

        The list is empty where all that came was about presence.
        """
        with self._filled:
            self._filled.wait_for(lambda: len(self) > 0, seconds)
            taken = [self._take() for _ in range(min(BATCH, self._count))]
            said, self._presence = self._presence, {}
        for inbound in said.values():
            self._note_presence(inbound)
        return taken

    def _put_presence(self, edge: str, inbound: Inbound) -> None:
        """Keep the newest word of an edge; the broker need not wait for that, nor keep it."""
        admitted = inbound.retained or self._limiter.admits_presence(edge)
        if edge != STRANGERS and admitted:
            word = replace(inbound, payload=bytes(inbound.payload[:WORD]), done=_done)
            with self._filled:
                self._presence[edge] = word
                self._filled.notify()
        inbound.done()

    def _has_room(self, edge: str, size: int) -> bool:
        if edge not in self._queues:
            return True
        if len(self._queues[edge]) >= (ROOM if edge else FEW):
            return False
        return self._bytes[edge] + size <= ROOM_BYTES and self._total + size <= TOTAL_BYTES

    def _append(self, edge: str, inbound: Inbound) -> None:
        self._queues.setdefault(edge, deque()).append(inbound)
        self._bytes[edge] += len(inbound.payload)
        self._total += len(inbound.payload)
        self._count += 1
        self._filled.notify()

    def _take(self) -> Inbound:
        edge = next(iter(self._queues))
        queue = self._queues.pop(edge)
        found = queue.popleft()
        if queue:  # its next turn is after all others'
            self._queues[edge] = queue
        self._bytes[edge] -= len(found.payload)
        self._total -= len(found.payload)
        self._count -= 1
        return found


def _done() -> None:
    """Do nothing: the message has been acknowledged already."""
