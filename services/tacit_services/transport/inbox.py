"""The queues of messages that have arrived and wait to be read: one for each sender, in turn.

An aggregator has one inbox for its edges, a peer one for the other peers.

A short word of a sender about itself (its presence, a peer's steps) is no message: the newest of
each is noted before the next messages are taken.

So an edge that sends more than others delays only itself. A queue has room for more than an honest
edge ever has under way. Messages beyond that are acknowledged to the broker and dropped, unread; an
edge that continues is shut out (flood_limit.py).
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol

from tacit_services.transport.flood_limit import RateLimiter
from tacit_services.transport.mqtt import Inbound
from tacit_services.transport.transfer import WINDOW

BATCH = 64  # messages that share one append; more arrive while it is being written
ROOM = 4 * WINDOW  # messages in one edge's queue: its window, copies of it, questions
ROOM_BYTES = 2 * WINDOW * (1 << 18)  # the most bytes in one edge's queue
TOTAL_BYTES = 1 << 28  # the most bytes in all queues; beyond it an edge has room for one message
STRANGERS = ""  # the name of the queue that all senders unknown to the run share
FEW = 16  # room in that queue: its messages are answered, so that an honest sender learns why
WORD = 32  # bytes of a word that are looked at
PRESENCE = "presence"
STEPS = "steps"


@dataclass(frozen=True, slots=True)
class Room:
    """The most messages and bytes in one sender's queue, and the most bytes in all."""

    messages: int = ROOM
    bytes: int = ROOM_BYTES
    total: int = TOTAL_BYTES


def edge_of(topic: str) -> tuple[str, str]:
    """Return the kind of an edge's message, and its sender; "" for what an edge cannot send so."""
    levels = topic.split("/", 5)
    name = levels[4] if len(levels) > 4 else ""
    return levels[3] if name and (len(levels) == 6 or levels[3] == PRESENCE) else "", name


class Filled(Protocol):
    """The part of threading.Condition by which an inbox waits for messages."""

    def __enter__(self) -> bool:
        """Keep other threads out of the queues."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let them in again."""

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Wait until `predicate` holds, for `timeout` seconds at most; return whether it does."""

    def notify(self) -> None:
        """Wake the thread that waits."""


class Inbox:
    """The queues, filled by the network's thread and emptied by the driver's."""

    def __init__(
        self,
        limiter: RateLimiter,
        names: Set[str],
        note: Callable[[Inbound], None],
        sender: Callable[[str], tuple[str, str]] = edge_of,
        room: Room = Room(),
        filled: Filled | None = None,
    ) -> None:
        """names: of the run's edges. note: takes a word, in the thread that gathers.

        sender: the kind of a topic, and whose it is. filled: waits; None: as threads do.
        """
        self._limiter = limiter
        self._names = names
        self._note = note
        self._sender = sender
        self._room = room
        self._words: dict[tuple[str, str], Inbound] = {}  # the newest of each kind and edge
        self._queues: dict[str, deque[Inbound]] = {}  # none is empty; the first is next
        self._bytes: Counter[str] = Counter()
        self._total = self._count = 0
        self._filled: Filled = threading.Condition() if filled is None else filled

    def __len__(self) -> int:
        return self._count + len(self._words)

    def put(self, inbound: Inbound) -> None:
        """Queue a message, or acknowledge it to the broker and drop it.

        A message of an edge that already has one in its queue is acknowledged at once. The broker
        waits for few acknowledgements at a time, and one edge must not use them all up.
        """
        kind, name = self._sender(inbound.topic)
        if name in self._names:
            edge = name
        else:
            edge = STRANGERS
        size = len(inbound.payload)
        if kind in (PRESENCE, STEPS):
            self._put_word(kind, edge, inbound)
            return
        # Honest edges retain only such words; the broker would deliver others again and again.
        if inbound.retained:
            self._limiter.drop(edge)
            inbound.done()
            return
        if kind and not self._limiter.admits(edge, size):
            inbound.done()
            return
        with self._filled:
            waits = edge in self._queues
            room = self._has_room(edge, size)
            if room:
                self._append(edge, replace(inbound, done=_acknowledged) if waits else inbound)
        if not room:
            self._limiter.drop(edge)
        if waits or not room:
            inbound.done()

    def gather(self, seconds: float, most: int | None = None) -> list[Inbound]:
        """Wait up to `seconds` for a message; return up to `most`, one of each edge in turn.

        most: BATCH, if None. The list is empty where all that came were words.
        """
        with self._filled:
            self._filled.wait_for(lambda: len(self) > 0, seconds)
            batch = [self._take() for _ in range(min(most or BATCH, self._count))]
            words = self._words
            self._words = {}
        for inbound in words.values():
            self._note(inbound)
        return batch

    def _put_word(self, kind: str, edge: str, inbound: Inbound) -> None:
        """Keep the newest word of an edge; the broker need not wait for that, nor keep it."""
        if kind == PRESENCE:
            limit = self._limiter.admits_presence
        else:
            limit = self._limiter.admits_steps
        admitted = inbound.retained or limit(edge)
        if edge != STRANGERS and admitted:
            word = replace(inbound, payload=bytes(inbound.payload[:WORD]), done=_acknowledged)
            with self._filled:
                self._words[kind, edge] = word
                self._filled.notify()
        inbound.done()

    def _has_room(self, edge: str, size: int) -> bool:
        if edge not in self._queues:
            return True
        if len(self._queues[edge]) >= (self._room.messages if edge else FEW):
            return False
        room = self._room
        return self._bytes[edge] + size <= room.bytes and self._total + size <= room.total

    def _append(self, edge: str, inbound: Inbound) -> None:
        self._queues.setdefault(edge, deque()).append(inbound)
        self._bytes[edge] += len(inbound.payload)
        self._total += len(inbound.payload)
        self._count += 1
        self._filled.notify()

    def _take(self) -> Inbound:
        edge = next(iter(self._queues))
        queue = self._queues.pop(edge)
        inbound = queue.popleft()
        if queue:  # its next turn is after all others'
            self._queues[edge] = queue
        self._bytes[edge] -= len(inbound.payload)
        self._total -= len(inbound.payload)
        self._count -= 1
        return inbound


def _acknowledged() -> None:
    """Do nothing: the message has been acknowledged already."""
