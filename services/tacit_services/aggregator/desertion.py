"""The end of a run whose connected edges have all spent their budgets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from tacit_services.aggregator.reporting.run_status import RunStatus

log = logging.getLogger("tacit.aggregator")
ALL_RETIRED_GRACE = 10.0  # seconds without an edge that could push, before the run ends
FEW_EDGES_GRACE = 60.0  # the same while fewer edges than expected have ever come
LOOK_SECONDS = 1.0  # between two looks, each of which is at every edge


class Desertion:
    """Watches one run, in its driver's thread."""

    def __init__(
        self, observer: RunStatus[Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._observer, self._clock = observer, clock
        self._looked = -LOOK_SECONDS
        self._since: float | None = None

    def reason(self) -> str | None:
        """Return why the run is to end, if no edge could push for long enough; else None."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return None
        self._looked = now
        if not self._observer.only_retired():
            self._since = None
            return None
        grace = self._grace()
        if self._since is None:
            self._since = now
            log.warning(
                "every edge here has spent its budget; the run ends in %g s unless one joins", grace
            )
        return "the budget of every edge online is spent" if now - self._since > grace else None

    def _grace(self) -> float:
        observer = self._observer
        few = len(observer.driver.role.edges) < observer.definition.workers
        return FEW_EDGES_GRACE if few else ALL_RETIRED_GRACE
