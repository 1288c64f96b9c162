"""The view of a run that the routes show: status and weights, made once for all clients."""

from __future__ import annotations

import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.models import Model
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.reporting.moment import Moment
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.journal.weights import Weights, weights

EVENT_PERIOD = 0.5  # seconds between two status events, at least


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """The safetensors file of one version's weights: its bytes, its SHA-256 in hexadecimal."""

    version: int
    clip: float
    size: int
    sha256: str


class View:
    """The run's status and its weights, each made once for all who ask.

    Weights are kept per version, the status for EVENT_PERIOD seconds. For any thread.
    """

    def __init__(self, observer: RunStatus[ServerDriver], model: Model) -> None:
        self.observer, self.driver, self.model = observer, observer.driver, model
        self._lock, self._feed_lock = threading.Lock(), threading.Lock()
        # Weakly: whoever asks for a status must not keep an old model in memory.
        self._params: weakref.ref[Tensor] | None = None
        self._size, self._sha256, self._data = 0, "", b""
        self._feed: dict[str, Any] = {}
        self._feed_at = -EVENT_PERIOD

    def file(self) -> tuple[bytes, str]:
        """The newest weights as a safetensors file, and its SHA-256: one copy for all downloads."""
        now = self.observer.moment()
        with self._lock:
            found = self._described(now)
            self._data = self._data or weights(self.model, now.params)
            return self._data, found.sha256

    def _file(self, now: Moment) -> WeightsFile:
        with self._lock:
            return self._described(now)

    def _described(self, now: Moment) -> WeightsFile:
        if self._params is None or self._params() is not now.params:
            file = Weights(self.model, now.params)
            self._size, self._sha256, self._data = len(file), file.sha256(), b""
            self._params = weakref.ref(now.params)
        return WeightsFile(now.version, now.clip, self._size, self._sha256)

    def status(self) -> dict[str, Any]:
        """Return the status with the digest of the weights, both of one moment.

        Its size does not depend on the number of edges.
        """
        now = self.observer.moment()
        return self.observer.status(now) | {"model_sha256": self._file(now).sha256}

    def feed(self, age: float = EVENT_PERIOD) -> dict[str, Any]:
        """The status of at most `age` seconds ago: one for however many streams ask."""
        with self._feed_lock:
            if time.monotonic() - self._feed_at >= age:
                self._feed, self._feed_at = self.status(), time.monotonic()
            return self._feed

    def model_info(self) -> dict[str, Any]:
        """Return a description of the weights file."""
        file, model = self._file(self.observer.moment()), self.model
        return {
            "name": model.name,
            "version": file.version,
            "parameters": model.size,
            "sha256": file.sha256,
            "bytes": file.size,
            "layers": [{"name": name, "shape": shape} for name, shape in model.layout],
            "clip": file.clip,
            "state": self.driver.state,
        }
