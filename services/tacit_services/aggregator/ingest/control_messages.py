"""A limit, in bytes and before decoding, on messages without a tensor: Hello, Retired, Want.

An update costs an edge some of its budget; a Hello of a megabyte costs it nothing, and takes as
long to read. So every edge has an allowance of such bytes, which no honest one comes near.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tacit_services.aggregator.ingest.retry import RetryLater
from tacit_services.transport.bucket import Bucket

RATE = 1 << 16  # bytes a second, in the long run
BURST = 1 << 20  # bytes at once: what the longest Meta has
EACH = 512  # bytes that a message counts for beside its own


class ControlMessages:
    """The allowance of bytes of each of the run's edges, for the driver's thread only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def spend(self, edge: str, size: int) -> None:
        """Count a message of `size` bytes against the edge's allowance.

        Raises RetryLater where it is one too many.
        """
        now = self._clock()
        bucket = self._buckets.setdefault(edge, Bucket(RATE, BURST, BURST, now))
        if wait := bucket.take(now, min(size + EACH, BURST)):
            raise RetryLater("throttled", wait)
