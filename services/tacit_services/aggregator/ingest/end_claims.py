"""When peers are believed that their run is over: when most of those that are here say so.

A peer's report says how far the counter of all steps is, as it knows it; one that says T would end
the run for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from tacit_services.aggregator.ingest.retry import RetryLater


class EndClaims:
    """For one driver, in its thread."""

    def __init__(self, horizon: int) -> None:
        """horizon: T, in versions."""
        self._horizon, self._said = horizon, set[str]()

    def check(self, edge: str, version: int, all_here: Callable[[], Set[str]]) -> None:
        """Raise RetryLater for a report of T that most of `all_here` do not make.

        It comes again, and is heard once they do.
        """
        if version < self._horizon:
            return
        self._said.add(edge)
        here = all_here()
        if 2 * len(self._said & here) <= len(here):
            raise RetryLater("early", 1.0)


class NoEndCheck(EndClaims):
    """Of runs with a server, which counts itself."""

    def check(self, edge: str, version: int, all_here: Callable[[], Set[str]]) -> None:
        """Nothing."""
