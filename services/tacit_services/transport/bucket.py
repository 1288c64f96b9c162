"""A token bucket: a limit on how often something may be done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Bucket:
    """A token bucket: `burst` tokens at once, `rate` a second in the long run.

    Time is the caller's, monotonic.
    """

    rate: float
    burst: float
    tokens: float
    at: float

    def take(self, now: float, count: float = 1.0) -> float:
        """Take `count` tokens and return 0, or return the seconds until there will be as many."""
        self.tokens = min(float(self.burst), self.tokens + max(0.0, now - self.at) * self.rate)
        self.at = now
        if self.tokens < count:
            return (count - self.tokens) / self.rate
        self.tokens -= count
        return 0.0
