"""A run of peers ends only when most of the connected ones report its end.

A peer's report carries the counter of all steps as that peer knows it. Without this check a single
report of T would end the run for all.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from tacit_services.aggregator.ingest.retry import RetryLater


class EndClaims:
    """The peers that have reported the end, for the driver's thread only."""

    def __init__(self, horizon: int) -> None:
        """horizon: T, in versions."""
        self._horizon, self._said = horizon, set[str]()

    def check(self, edge: str, version: int, all_here: Callable[[], Set[str]]) -> None:
        """Raise RetryLater for a report of T while most connected peers (`all_here`) make none.

        The report comes again, and is accepted once they do.
        """
        if version < self._horizon:
            return
        self._said.add(edge)
        here = all_here()
        if 2 * len(self._said & here) <= len(here):
            raise RetryLater("early", 1.0)


class NoEndCheck(EndClaims):
    """No check, for runs with a server, which counts updates itself."""

    def check(self, edge: str, version: int, all_here: Callable[[], Set[str]]) -> None:
        """Accept every message."""
