"""The end of a run whose connected edges have all spent their budgets.

An edge that is away and has budget, as one whose machine starts again, is waited for: for
`edges.grace` seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tacit_services.aggregator.reading import RunReading

log = logging.getLogger("tacit.desertion")
ALL_RETIRED_GRACE = 10.0  # seconds without an edge that could push, before the run ends
FEW_EDGES_GRACE = 60.0  # the same while fewer edges than expected have ever come
LOOK_SECONDS = 1.0  # between two looks, each of which is at every edge


class Desertion:
    """The watch over the edges of one run, in its driver's thread."""

    def __init__(
        self,
        reading: Callable[[], RunReading],
        workers: int,
        grace: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """workers: edges that the run expects. grace: seconds that one is waited for."""
        self._reading = reading
        self._workers = workers
        self._grace = grace
        self._clock = clock
        self._looked = -LOOK_SECONDS
        self._since: float | None = None

    def reason(self) -> str | None:
        """Return why the run is to end, if no edge could push for long enough; else None."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return None
        self._looked = now
        reading = self._reading()
        if not reading.only_retired:
            self._since = None
            return None
        if len(reading.records) < self._workers:
            grace = FEW_EDGES_GRACE
        else:
            grace = ALL_RETIRED_GRACE
        away = reading.away_with_budget
        if away:
            grace = max(grace, self._grace)
        if self._since is None:
            self._since = now
            log.warning(
                "every edge here has spent its budget; the run ends in %g s unless one joins%s",
                grace,
                f" ({away[0]} is away, and has budget)" if away else "",
            )
        if now - self._since > grace:
            return "the budget of every edge online is spent"
        return None
