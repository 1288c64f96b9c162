"""The guard refuses messages by the run file's [guard], before they reach the journal.

So a replay never meets them. An empty [guard] refuses nothing. The guard's own memory ends with the
process: a restart begins with full buckets and no refusals. Edges that the role accuses by the sums
of their updates are in the journal, and stay in quarantine until it has an operator's release.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable

from tacit.algorithms.base.server import ServerRole
from tacit.config import sections
from tacit.errors import WireError
from tacit.privacy.plan import Plan
from tacit.rounding import beside
from tacit_services.aggregator.ingest.receipts import RetryLater
from tacit_services.transport.bucket import Bucket

log = logging.getLogger("tacit.guard")
# Reasons that are no fault of the edge: its restart, the run's end, a spent budget.
_NO_FAULT = ("halted", "unknown", "version", "budget", "order", "quarantined")
# The noise's grid is 2^12 times finer than its standard deviation, and float32 beyond that.
_ROUNDING = 1 + 2.0**-10


class UpdateGuard:
    """The judge of messages in the driver's thread; any thread may call `quarantined`."""

    def __init__(
        self,
        section: sections.Guard,
        role: ServerRole,
        plan: Callable[[str], Plan],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """plan: returns the privacy plan of an edge, by its name."""
        self._section = section
        self._role = role
        self._plan = plan
        self._clock = clock
        # And the highest number that was let through.
        self._buckets: dict[str, tuple[Bucket, int]] = {}
        self._refused: Counter[str] = Counter()
        self._quarantined: dict[str, str] = {}  # and why

    def quarantined(self) -> dict[str, str]:
        """Return the edges in quarantine, and why: only the last message of each is accepted."""
        return self._quarantined | self._role.accused

    def admit(self, edge: str, *, retires: bool) -> None:
        """Raise WireError ("quarantined") for a message of an edge in quarantine.

        Its last message, and all after the run's end, pass: they report what it has spent.
        """
        shut_out = edge in self._quarantined or edge in self._role.accused
        if shut_out and not self._role.halted and not retires:
            raise WireError("quarantined", "an operator may release it")

    @property
    def bounds_norms(self) -> bool:
        """Whether the lengths of updates are checked."""
        return self._section.norm_factor is not None

    def check_norm(self, edge: str, norm: float, base_version: int, size: int) -> None:
        """Raise WireError ("norm") for an update that is longer than an honest edge's.

        norm: its Euclidean length; size: how many numbers it has.
        """
        bound = self.bound(edge, base_version, size)
        if not norm <= bound:
            raise WireError("norm", f"{beside(norm, bound, 4)} is above {beside(bound, norm, 4)}")

    def bound(self, edge: str, base_version: int, size: int) -> float:
        """Return the largest Euclidean norm that this update may have.

        C is what the server asked for with that model, not what the edge claims to have used.
        """
        role = self._role
        section = self._section
        assert section.norm_factor is not None
        return norm_bound(
            role.clip_at(base_version),
            role.batch,
            self._plan(edge).noise_multiplier,
            size,
            factor=section.norm_factor,
            false_alarm=section.false_alarm,
        )

    def refused(self, edge: str, reason: str) -> None:
        """Count a final refusal of this edge's message; enough of them put it in quarantine."""
        limit = self._section.quarantine_after
        if limit is None or reason in _NO_FAULT or edge not in self._role.edges:
            return
        self._refused[edge] += 1
        if self._refused[edge] >= limit and edge not in self._quarantined:
            why = f"{limit} refusals (the last: {reason})"
            self._quarantined = self._quarantined | {edge: why}  # another thread may read it
            log.warning("%s is in quarantine: %s", edge, why)

    def release(self, edge: str) -> None:
        """End this edge's quarantine, and forget its refusals.

        An accusation by its updates' sums is the role's to lift.
        """
        self._quarantined = {name: w for name, w in self._quarantined.items() if name != edge}
        del self._refused[edge]
        log.info("%s is released from quarantine", edge)

    def throttle(self, edge: str, seq: int) -> None:
        """Raise RetryLater for a message above the rate; a resend does not count."""
        rate = self._section.rate
        burst = self._section.burst
        now = self._clock()
        if rate is None:
            return
        bucket, let_through = self._buckets.get(edge, (Bucket(rate, burst, burst, now), 0))
        if seq <= let_through:
            return  # a resend, which its receipt will end
        if wait := bucket.take(now):
            self._buckets[edge] = (bucket, let_through)
            raise RetryLater("throttled", wait)
        self._buckets[edge] = (bucket, seq)


def norm_bound(
    clip: float,
    batch: float,
    noise_multiplier: float,
    size: int,
    *,
    factor: float = 1.0,
    false_alarm: float = 1e-9,
) -> float:
    """Return the l2 norm that an honest (sum + noise)/L exceeds with probability <= `false_alarm`.

    A server can know it without knowing any data. Only magnitudes are judged. A poisoned update as
    long as an honest one cannot be told from it: the noise that protects the data hides the poison,
    too (docs/privacy.md).

    clip: C. batch: L > 0. The noise has standard deviation z·C in each of `size` coordinates. The
    sum has norm C·B at most, with B examples in a Poisson batch of mean factor·L or less. Let t =
    ln(2/false_alarm) and m = factor·L. Then B <= m + sqrt(2mt) + t/3 (Bernstein), and ||noise|| <=
    zC(sqrt(d) + sqrt(2t)), by Gaussian concentration. (For the discrete Gaussian: Hsu, Kakade,
    Zhang 2012.) Each holds except with probability false_alarm/2. The triangle inequality holds for
    all data, so this is no assumption about gradients.
    """
    t = math.log(2 / false_alarm)
    mean = factor * batch
    examples = mean + math.sqrt(2 * mean * t) + t / 3
    noise = noise_multiplier * (math.sqrt(size) + math.sqrt(2 * t))
    return clip / batch * (examples + noise) * _ROUNDING
