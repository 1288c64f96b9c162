"""A thread for each tracker, so that one that is slow or broken holds up no run."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from tacit_services.tracking.tracker import Tracker, TrackerError

log = logging.getLogger("tacit.tracking")
Call = Callable[[Tracker], None]


class TrackerThread:
    """Hands calls to a tracker, one by one. A tracker that fails is warned of once, and left."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, name=f"tracker-{tracker.name}", daemon=True
        )
        self._thread.start()

    def put(self, call: Call) -> None:
        """Let the tracker do `call` when it is through with earlier ones; never waits."""
        if self._thread.is_alive():
            self._calls.put(call)

    def close(self, seconds: float) -> None:
        """Wait at most so long until the tracker is through. Idempotent."""
        self._calls.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning(
                "tracking.%s: is not through after %g s; the rest is not written there",
                self._tracker.name,
                seconds,
            )

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call(self._tracker)
            except TrackerError as error:
                log.warning(
                    "tracking.%s: %s; the run goes on without it", self._tracker.name, error
                )
                return
