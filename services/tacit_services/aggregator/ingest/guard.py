"""The optional [guard] of a run file, in front of the journal: what it refuses is never in it, nor
in a replay.

Its memory is this process's: a restart begins with full buckets, no refusals and nobody in
quarantine.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

import torch

from tacit.algorithms import mapa
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.errors import WireError
from tacit.protocol.messages import Hello, Retired, Update
from tacit_services.aggregator.ingest.buckets import Bucket, norm_bound
from tacit_services.aggregator.ingest.reassembly import Crowded

log = logging.getLogger("tacit_services.aggregator.ingest.buckets")
MAX_EDGES = 100_000  # names to keep account of
# Reasons that no misbehaviour is behind: an edge after a restart, a run's end, a spent budget.
_NO_FAULT = ("halted", "unknown", "version", "budget", "order", "quarantined")


class Throttled(Crowded):
    """This edge has sent more than its share; the same bytes may come again in `retry_after_s`."""

    counted = "throttled"

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"again in {retry_after_s:.3g} s")
        self.retry_after_s = retry_after_s


class Guard:
    """Judges messages for one driver, in its thread; `quarantined` and `release` are for any."""

    def __init__(
        self, run: RunFile, role: ServerRole, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._section, self._role, self._clock = run.guard, role, clock
        self._batch, self._first_clip = run.privacy.batch, role.clip  # C falls only
        self._plan = run.plans().named
        self._buckets: dict[
            str, tuple[Bucket, int]
        ] = {}  # and the highest number that was let through
        self._refused: Counter[str] = Counter()
        self._quarantined: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    @property
    def quarantined(self) -> frozenset[str]:
        """Edges of which nothing but a farewell is taken."""
        return self._quarantined

    def admit(self, edge: str, message: Hello | Update | Retired) -> None:
        """Raise WireError ("quarantined").

        What an edge has spent is heard at its end, and at the run's.
        """
        if edge in self._quarantined and not self._role.halted and not isinstance(message, Retired):
            raise WireError("quarantined", "an operator may release it")

    def check(self, edge: str, seq: int, message: Hello | Update | Retired) -> None:
        """Raise WireError ("norm") for a vector that no honest edge sends, Throttled for one
        message too many.
        """
        if isinstance(message, Update) and self._section.norm_factor is not None:
            bound, norm = (
                self.bound(message),
                float(torch.linalg.vector_norm(message.vector.to(torch.float64))),
            )
            if not norm <= bound:
                raise WireError("norm", f"{norm:.4g} is above {bound:.4g}")
        if self._section.rate is not None:
            self._throttle(edge, seq, self._section.rate)

    def bound(self, update: Update) -> float:
        """The longest that this update may be.

        C is what the server asked for, not what the edge says it used.
        """
        role, section = self._role, self._section
        assert section.norm_factor is not None
        assert isinstance(role, mapa.Server)  # the run file refuses norm_factor with any other
        this_stage = update.base_version >= role.version - role.stage_step
        return norm_bound(
            role.clip if this_stage else self._first_clip,
            self._batch,
            self._plan(update.edge).noise_multiplier,
            update.vector.numel(),
            factor=section.norm_factor,
            false_alarm=section.false_alarm,
        )

    def refused(self, edge: str, reason: str) -> None:
        """A message of this edge was refused for good."""
        limit = self._section.quarantine_after
        if limit is None or reason in _NO_FAULT or edge not in self._role.edges:
            return
        with self._lock:
            self._refused[edge] += 1
            if self._refused[edge] >= limit and edge not in self._quarantined:
                self._quarantined |= {edge}
                log.warning(
                    "%s is in quarantine after %d refusals (the last: %s)", edge, limit, reason
                )

    def release(self, edge: str) -> bool:
        """End an edge's quarantine and forget its refusals; False if it was not in quarantine."""
        with self._lock:
            held = edge in self._quarantined
            self._quarantined -= {edge}
            del self._refused[edge]
        if held:
            log.info("%s is released from quarantine", edge)
        return held

    def _throttle(self, edge: str, seq: int, rate: float) -> None:
        now, burst = self._clock(), self._section.burst
        if edge not in self._buckets and len(self._buckets) >= MAX_EDGES:
            return
        bucket, let_through = self._buckets.get(edge, (Bucket(rate, burst, burst, now), 0))
        if seq <= let_through:
            return  # a resend, which its receipt will end
        if wait := bucket.take(now):
            self._buckets[edge] = (bucket, let_through)
            raise Throttled(wait)
        self._buckets[edge] = (bucket, seq)
