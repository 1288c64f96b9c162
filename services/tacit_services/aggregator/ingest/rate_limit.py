"""The first check of what comes, on the network thread: what a flood costs when nobody reads it.

The guard itself judges whole messages and answers BUSY. By then a message has been queued, put
together, decoded and answered; an edge that does not listen could fill the aggregator's queue at
the broker, and everybody would wait behind. Here each edge has an allowance of bytes, enough for
`rate` updates a second with their resends, questions and Hellos; what is beyond is acknowledged to
the broker and dropped, unread and unanswered. No edge that heeds BUSY comes near it. One that goes
on all the same is shut out for a while, twice as long each time: the broker is told to keep what it
sends (subscriptions.py), for receiving and acknowledging is most of what a flood costs.

Without [guard] rate nobody has an allowance, but who sends more than the inbox has room for
(inbox.py) is shut out in the same way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from tacit_services.transport.bucket import Bucket

EACH = 512  # bytes that a message counts for beside its payload: small ones cost, too
PATIENCE = (
    200  # dropped messages at once, and a tenth of that each second, before an edge is shut out
)
SHUT_SECONDS, MOST_SHUT_SECONDS = 10.0, 600.0

log = logging.getLogger("tacit.rate_limit")


@dataclass(slots=True)
class _Account:
    """One edge's bytes that it may send, and messages that may be dropped.

    next: seconds for which it is shut out the next time.
    """

    bytes: Bucket
    drops: Bucket
    next: float = SHUT_SECONDS


class RateLimiter:
    """Counts bytes of each edge, in one thread; `shut` is for any. `dropped` counts messages.

    Edges are the run's, and "", which stands for all others.
    """

    def __init__(
        self,
        rate: float | None,
        burst: int,
        update_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """rate, burst: the guard's, in updates; rate None: no limit. update_bytes: of one update.

        An update in parts of 1 KiB counts for half as much again.
        """
        allowance = 1.5 * update_bytes + 4096
        self._rate = None if rate is None else rate * allowance
        self._burst, self._clock = (burst + 2) * allowance, clock
        self._accounts: dict[str, _Account] = {}
        self._shut: dict[str, float] = {}  # until when
        self.dropped = 0

    def admits(self, edge: str, size: int) -> bool:
        """Whether to take in a message of `size` bytes; else it has been counted as dropped."""
        if self._rate is None:
            return True
        if not self._account(edge).bytes.take(self._clock(), size + EACH):
            return True
        self.drop(edge)
        return False

    def drop(self, edge: str) -> None:
        """A message of this edge is dropped; one that goes on all the same is shut out."""
        now, account = self._clock(), self._account(edge)
        self.dropped += 1
        if account.drops.take(now) and now >= self._shut.get(edge, 0.0):
            self._shut = {**self._still(now), edge: now + account.next}
            log.warning("%s floods: not heard for %g s", edge or "a stranger", account.next)
            account.next = min(MOST_SHUT_SECONDS, 2 * account.next)

    def _account(self, edge: str) -> _Account:
        if edge not in self._accounts:
            now, rate = self._clock(), self._rate or 0.0
            self._accounts[edge] = _Account(
                Bucket(rate, self._burst, self._burst, now),
                Bucket(PATIENCE / 10, PATIENCE, PATIENCE, now),
            )
        return self._accounts[edge]

    def shut(self) -> frozenset[str]:
        """Edges that are not to be heard now."""
        return frozenset(self._still(self._clock())) if self._shut else frozenset()

    def _still(self, now: float) -> dict[str, float]:
        return {edge: until for edge, until in self._shut.items() if until > now}
