"""What the routes show of a run: its status and its weights, made once for all who ask."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.models import Model
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.reporting.run_status import Observer
from tacit_services.journal.weights import weights

FINAL = ("finished", "halted")
EVENT_PERIOD = 0.5  # seconds between two status events, at least


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """The weights of one version as a safetensors file, with its SHA-256 in hexadecimal."""

    version: int
    clip: float
    data: bytes
    sha256: str


class View:
    """The run's status and its weights, each made once for all who ask.

    Weights are kept per version, the status for EVENT_PERIOD seconds. For any thread.
    """

    def __init__(self, observer: Observer[ServerDriver], model: Model) -> None:
        self.observer, self.driver, self.model = observer, observer.driver, model
        self._lock, self._feed_lock = threading.Lock(), threading.Lock()
        self._params: Tensor | None = None
        self._data, self._sha256 = b"", ""
        self._feed: dict[str, Any] = {}
        self._feed_at = -EVENT_PERIOD

    def file(self) -> WeightsFile:
        """The newest weights."""
        driver = self.driver
        with driver.lock:
            version, clip, params = driver.role.version, driver.role.clip, driver.role.params
        with self._lock:
            if (
                self._params is not params
            ):  # the fold replaces its parameters, it never writes into them
                self._data = weights(self.model, params)
                self._params, self._sha256 = params, hashlib.sha256(self._data).hexdigest()
            return WeightsFile(version, clip, self._data, self._sha256)

    def status(self) -> dict[str, Any]:
        """The observer's status with the digest, of one size whatever the number of edges: of these
        it has the one that has released least. `model_version` is the digest's, and may be newer
        than `applied`.

        In this order, so that the digest beside `finished` is the last model's.
        """
        status, file = self.observer.status(), self.file()
        privacy = dict(status["privacy"])
        released = {name: edge["pushes"] for name, edge in privacy.pop("edges").items()}
        slowest = min(released, key=released.__getitem__, default=None)
        return {
            **status,
            "privacy": privacy | {"bound": self.driver.state not in FINAL},
            "slowest": slowest and {"id": slowest, "releases": released[slowest]},
            "model_version": file.version,
            "model_sha256": file.sha256,
        }

    def edges(self, after: str, limit: int) -> list[dict[str, Any]]:
        """Edges in the order of their names, at most `limit`, from the first one behind `after`."""
        return [row for row in self.observer.edges() if row["id"] > after][:limit]

    def feed(self, age: float = EVENT_PERIOD) -> dict[str, Any]:
        """The status of at most `age` seconds ago: one for however many streams ask."""
        with self._feed_lock:
            if time.monotonic() - self._feed_at >= age:
                self._feed, self._feed_at = self.status(), time.monotonic()
            return self._feed

    def model_info(self) -> dict[str, Any]:
        """What the weights file holds."""
        file, model = self.file(), self.model
        return {
            "name": model.name,
            "version": file.version,
            "parameters": model.size,
            "sha256": file.sha256,
            "bytes": len(file.data),
            "layers": [{"name": name, "shape": shape} for name, shape in model.layout],
            "clip": file.clip,
            "state": self.driver.state,
        }
