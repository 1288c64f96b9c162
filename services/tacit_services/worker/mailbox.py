"""The mailbox of a worker: messages from the broker, and signs from other threads."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from enum import Enum

from tacit_services.transport.mqtt import Inbound

WAIT = 0.1  # seconds that `take` waits for something


class Sign(Enum):
    """A sign from another thread to the worker's."""

    CONNECTED = "the connection has come up, or back"
    CHANGED = "there may be something to do"


class Mailbox:
    """Filled by any thread, emptied by the worker's, in the order in which things came."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Inbound | Sign] = queue.SimpleQueue()

    def put(self, inbound: Inbound) -> None:
        """Add a message; called on the network thread."""
        self._queue.put(inbound)

    def connected(self) -> None:
        """Note that the connection has come up, or back."""
        self._queue.put(Sign.CONNECTED)

    def wake(self) -> None:
        """Wake the worker, as there may be something to do."""
        self._queue.put(Sign.CHANGED)

    def take(self, *, wait: bool) -> Iterator[Inbound | Sign]:
        """Yield all that has come; `wait` shortly where nothing has."""
        try:
            if wait:
                item = self._queue.get(timeout=WAIT)
            else:
                item = self._queue.get_nowait()
            while True:
                yield item
                item = self._queue.get_nowait()
        except queue.Empty:
            return
