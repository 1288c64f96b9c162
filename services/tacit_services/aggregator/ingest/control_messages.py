"""Limits, in bytes, on messages without a tensor: Hello, Retired, Want.

An update costs an edge some of its budget; a Hello of a megabyte costs it nothing, takes as long to
read, and is in the journal and its file for ever. So every edge has an allowance of such bytes to
be read, counted before decoding, and a smaller one of those to be kept. No honest edge comes near.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tacit_services.aggregator.ingest.retry import RetryLater
from tacit_services.transport.bucket import Bucket

RATE = 1 << 16  # bytes a second to be read, in the long run
KEPT_RATE = 1 << 10  # to be kept: a Hello every other second
BURST = 1 << 20  # bytes at once: what the longest Meta has
EACH = 512  # bytes that a message counts for beside its own


class ControlMessages:
    """The allowance of bytes of each of the run's edges, for the driver's thread only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read: dict[str, Bucket] = {}
        self._kept: dict[str, Bucket] = {}

    def spend(self, edge: str, size: int) -> None:
        """Count a message of `size` bytes that is to be read.

        Raises RetryLater where it is one too many.
        """
        self._count(self._read, RATE, edge, size)

    def keep(self, edge: str, size: int) -> None:
        """Count a message of `size` bytes that is new to the journal.

        Raises RetryLater where it is one too many.
        """
        self._count(self._kept, KEPT_RATE, edge, size)

    def _count(self, buckets: dict[str, Bucket], rate: float, edge: str, size: int) -> None:
        now = self._clock()
        bucket = buckets.setdefault(edge, Bucket(rate, BURST, BURST, now))
        if wait := bucket.take(now, min(size + EACH, BURST)):
            raise RetryLater("throttled", wait)
