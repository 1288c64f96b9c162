"""The first check of [guard] rate, on the network thread: what a flood costs when nobody reads it.

The guard itself judges whole messages and answers BUSY. By then a message has been queued, put together, decoded and
answered; an edge that does not listen could fill the aggregator's queue at the broker, and everybody would wait behind.
Here each edge has an allowance of bytes, enough for `rate` updates a second with their resends, questions and Hellos;
what is beyond is acknowledged to the broker and dropped, unread and unanswered. No edge that heeds BUSY comes near it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from services.runtime.mqtt import Inbound
from tacit.guard import Bucket

MAX_EDGES = 100_000  # names to keep account of
EACH = 512  # bytes that a message counts for beside its payload: small ones cost, too


class Door:
    """Counts bytes of each edge; used by one thread. `dropped` counts messages."""

    def __init__(
        self, rate: float, burst: int, update_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        """rate, burst: of the guard, in updates; update_bytes: of one update. In parts of 1 KiB it counts for half as
        much again."""
        allowance = 1.5 * update_bytes + 4096
        self._rate, self._burst, self._clock = rate * allowance, (burst + 2) * allowance, clock
        self._buckets: dict[str, Bucket] = {}
        self.dropped = 0

    def admits(self, inbound: Inbound) -> bool:
        """Whether to take it in; else it has been acknowledged, and that was all."""
        levels = inbound.topic.split("/", 5)
        if levels[3:4] != ["up"] or len(levels) < 6:
            return True
        bucket = self._buckets.get(levels[4])
        if bucket is None:
            if len(self._buckets) >= MAX_EDGES:
                return True
            bucket = self._buckets[levels[4]] = Bucket(self._rate, self._burst, self._burst, self._clock())
        if not bucket.take(self._clock(), len(inbound.payload) + EACH):
            return True
        self.dropped += 1
        inbound.done()
        return False
