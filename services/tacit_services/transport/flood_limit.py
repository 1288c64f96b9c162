"""The first check of incoming messages, on the network thread: it drops a flood unread.

The guard itself judges whole messages and answers BUSY. By then a message has been queued, put
together, decoded and answered. An edge that ignores the answers could fill the aggregator's queue
at the broker, and all others would wait behind it. Here each edge has an allowance of bytes, enough
for `rate` updates a second with their resends, questions and Hellos. Messages beyond it are
acknowledged to the broker and dropped, unread and unanswered. No edge that heeds BUSY comes near
it. An edge that continues is shut out for a while, twice as long each time. The broker is told to
keep its messages (presence.py), since receiving and acknowledging is most of a flood's cost.

Without [guard] rate there are no such allowances. But an edge that sends more than the inbox has
room for (inbox.py), or changes its presence all the time, is shut out in the same way. So is an
edge whose messages lead to nothing, in the driver's thread: parts that never make a message,
questions, refused messages.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tacit_services.transport.bucket import Bucket

EACH = 512  # bytes that a message counts for beside its payload: small ones cost, too
# Dropped messages at once before an edge is shut out; a tenth of it each second in the long run.
PATIENCE = 200
SHUT_SECONDS = 10.0
MOST_SHUT_SECONDS = 600.0
# Changes of presence that an edge has a second in the long run, and at once; each is logged.
CHANGES = 1.0
CHANGES_AT_ONCE = 30
# A peer's numbers of its steps.
STEPS = 200.0
STEPS_AT_ONCE = 2000
# Messages without an entry of the journal that an edge has a second in the long run; and at once,
# beside the parts of two updates.
FRUITLESS = 200.0
FRUITLESS_AT_ONCE = 2000
SMALLEST_PART = 900  # bytes of a message in one of its parts, unless an edge makes them tiny

log = logging.getLogger("tacit.rate_limit")


@dataclass(slots=True)
class _Account:
    """One edge's allowances.

    bytes: that it may send. changes: of its presence. steps: numbers of its steps. drops: messages
    that may be dropped before it is shut out. fruitless: messages that may lead to nothing. next:
    seconds for which it is shut out the next time.
    """

    bytes: Bucket
    changes: Bucket
    steps: Bucket
    drops: Bucket
    fruitless: Bucket
    next: float = SHUT_SECONDS


class RateLimiter:
    """The limit on the bytes of each edge, and on what leads to nothing.

    The first is kept in the network's thread, the second in the driver's; any thread may call
    `shut`.

    Edges are the run's, and "", which stands for all senders that are not. dropped: messages
    dropped so far.
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
        if rate is None:
            self._rate = None
        else:
            self._rate = rate * allowance
        self._burst = (burst + 2) * allowance
        self._clock = clock
        self._fruitless = FRUITLESS_AT_ONCE + 2 * update_bytes / SMALLEST_PART
        self._accounts: dict[str, _Account] = {}
        self._lock = threading.Lock()  # of who is shut out
        self._shut: dict[str, float] = {}  # until when
        self.dropped = 0

    def admits(self, edge: str, size: int) -> bool:
        """Return whether to take in a message of `size` bytes; count it as dropped if not."""
        if self._rate is None:
            return True
        if not self._account(edge).bytes.take(self._clock(), size + EACH):
            return True
        self.drop(edge)
        return False

    def admits_presence(self, edge: str) -> bool:
        """Return whether to take in an edge's presence; count it as dropped if not."""
        if not self._account(edge).changes.take(self._clock()):
            return True
        self.drop(edge)
        return False

    def admits_steps(self, edge: str) -> bool:
        """Return whether to take in a peer's number of steps; count it as dropped if not."""
        if not self._account(edge).steps.take(self._clock()):
            return True
        self.drop(edge)
        return False

    def drop(self, edge: str) -> None:
        """Count a dropped message; shut out an edge of which too many have been dropped."""
        now = self._clock()
        account = self._account(edge)
        self.dropped += 1
        if account.drops.take(now):
            self._shut_out(edge, account, now)

    def begin(self, edge: str) -> None:
        """Count a message that is looked at now; shut out an edge that has no more of them.

        For the driver's thread, as `succeed` is.
        """
        now = self._clock()
        account = self._account(edge)
        if account.fruitless.take(now):
            self._shut_out(edge, account, now)

    def succeed(self, edge: str, size: int) -> None:
        """Uncount the parts of a message of `size` bytes, which is for the journal."""
        self._account(edge).fruitless.tokens += 1 + size / SMALLEST_PART

    def _shut_out(self, edge: str, account: _Account, now: float) -> None:
        with self._lock:
            if now < self._shut.get(edge, 0.0):
                return
            self._shut = {**self._still(now), edge: now + account.next}
            log.warning("%s floods: shut out for %g s", edge or "an unknown edge", account.next)
            account.next = min(MOST_SHUT_SECONDS, 2 * account.next)

    def _account(self, edge: str) -> _Account:
        return self._accounts.get(edge) or self._accounts.setdefault(edge, self._new_account())

    def _new_account(self) -> _Account:
        now = self._clock()
        rate = self._rate or 0.0
        return _Account(
            Bucket(rate, self._burst, self._burst, now),
            Bucket(CHANGES, CHANGES_AT_ONCE, CHANGES_AT_ONCE, now),
            Bucket(STEPS, STEPS_AT_ONCE, STEPS_AT_ONCE, now),
            Bucket(PATIENCE / 10, PATIENCE, PATIENCE, now),
            Bucket(FRUITLESS, self._fruitless, self._fruitless, now),
        )

    def shut(self) -> frozenset[str]:
        """Return the edges that are shut out now."""
        if self._shut:
            return frozenset(self._still(self._clock()))
        return frozenset()

    def _still(self, now: float) -> dict[str, float]:
        return {edge: until for edge, until in self._shut.items() if until > now}
