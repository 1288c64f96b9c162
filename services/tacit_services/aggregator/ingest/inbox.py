"""What has come from the broker and was not taken yet; a flood is dropped in front of it."""

from __future__ import annotations

import contextlib
import queue

from tacit_services.aggregator.ingest.rate_limit import RateLimiter
from tacit_services.transport.mqtt import Inbound

BATCH = 64  # messages that share one append; more arrive while it is being written


class Inbox:
    """Filled by the network's thread, emptied by the driver's."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self._queue: queue.SimpleQueue[Inbound] = queue.SimpleQueue()

    def __len__(self) -> int:
        return self._queue.qsize()

    def hear(self, inbound: Inbound) -> None:
        """Take a message in, or acknowledge it to the broker, and that was all."""
        levels = inbound.topic.split("/", 5)
        said_up = levels[3:4] == ["up"] and len(levels) == 6
        if said_up and not self._limiter.admits(levels[4], len(inbound.payload)):
            inbound.done()
        else:
            self._queue.put(inbound)

    def gather(self, seconds: float) -> list[Inbound]:
        """What has come, once anything has; nothing if nothing comes for so long."""
        arrived: list[Inbound] = []
        with contextlib.suppress(queue.Empty):
            arrived.append(self._queue.get(timeout=seconds))
            while len(arrived) < BATCH:
                arrived.append(self._queue.get_nowait())
        return arrived
