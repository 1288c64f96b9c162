"""A histogram of durations. One thread observes; any may read."""

from __future__ import annotations

from bisect import bisect_left

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Observations per bucket (upper bounds SECONDS, then infinity), and their sum."""

    def __init__(self) -> None:
        self.total = 0.0
        self._counts = [0] * (len(SECONDS) + 1)

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it), as Prometheus wants them."""
        counts, rows, upto = list(self._counts), [], 0
        for bound, count in zip([*SECONDS, float("inf")], counts, strict=True):
            upto += count
            rows.append(("+Inf" if bound == float("inf") else repr(bound), float(upto)))
        return rows
