"""The view of a run that the routes show: status and weights, made once for all clients."""

from __future__ import annotations

import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.graphs.graph_facts import GraphFacts, document_of, facts_of_checked
from tacit.graphs.graph_picture import picture
from tacit.models import Model
from tacit.models.additive import AdditiveModel
from tacit.models.graph.graph_model import GraphModel
from tacit_services.aggregator.reading import RunReading
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

    def __init__(self, run_status: RunStatus, model: Model) -> None:
        """model: as the run's definition builds it. Of a graph, its layers are made here, once."""
        self._layers = _layers(run_status, model)
        self._picture = None if self._layers is None else picture(self._layers).encode()
        self._run_status = run_status
        self._model = model
        self._lock = threading.Lock()
        self._feed_lock = threading.Lock()
        # Weakly: whoever asks for a status must not keep an old model in memory.
        self._params: weakref.ref[Tensor] | None = None
        self._size = 0
        self._sha256 = ""
        self._data = b""
        self._feed: dict[str, Any] = {}
        self._feed_at = -EVENT_PERIOD

    def file(self) -> tuple[bytes, str]:
        """Return the newest weights as a safetensors file, and its SHA-256.

        All downloads share one copy.
        """
        reading = self._run_status.reading()
        with self._lock:
            file = self._described(reading)
            self._data = self._data or weights(self._model, reading.params)
            return self._data, file.sha256

    def _file(self, reading: RunReading) -> WeightsFile:
        with self._lock:
            return self._described(reading)

    def _described(self, reading: RunReading) -> WeightsFile:
        if self._params is None or self._params() is not reading.params:
            file = Weights(self._model, reading.params)
            self._size = len(file)
            self._sha256 = file.sha256()
            self._data = b""
            self._params = weakref.ref(reading.params)
        return WeightsFile(reading.version, reading.clip, self._size, self._sha256)

    def status(self) -> dict[str, Any]:
        """Return the status with the digest of the weights, both of one moment.

        Its size does not depend on the number of edges.
        """
        reading = self._run_status.reading()
        return self._run_status.status(reading) | {"model_sha256": self._file(reading).sha256}

    def feed(self, age: float = EVENT_PERIOD) -> dict[str, Any]:
        """Return the status of at most `age` seconds ago: one for however many streams ask."""
        with self._feed_lock:
            if time.monotonic() - self._feed_at >= age:
                self._feed = self.status()
                self._feed_at = time.monotonic()
            return self._feed

    def model_info(self) -> dict[str, Any]:
        """Return a description of the weights file."""
        reading = self._run_status.reading()
        model = self._model
        file = self._file(reading)
        return {
            "name": model.name,
            "version": file.version,
            "parameters": model.size,
            "sha256": file.sha256,
            "bytes": file.size,
            "layers": [{"name": name, "shape": shape} for name, shape in model.layout],
            "clip": file.clip,
            "state": reading.state,
            "graph": self._layers is not None,
            "additive": isinstance(model, AdditiveModel),
        }

    def functions(self) -> dict[str, Any] | None:
        """Return the functions of an additive model; None: there are none yet, or ever."""
        return self._run_status.functions.document(self._run_status.reading())

    def functions_picture(self) -> bytes | None:
        """Return the functions as an SVG file; None: there are none yet, or ever."""
        return self._run_status.functions.picture(self._run_status.reading())

    def network(self) -> dict[str, Any] | None:
        """Return a graph's layers; None: the model is no graph."""
        return None if self._layers is None else document_of(self._layers)

    def network_picture(self) -> bytes | None:
        """Return a graph's layers as an SVG file; None: the model is no graph."""
        return self._picture


def _layers(run_status: RunStatus, model: Model) -> GraphFacts | None:
    if not isinstance(model, GraphModel):
        return None
    code: dict[str, str] = run_status.definition.agreed.get("code", {})
    return facts_of_checked(model.checked, code.get("graph"))
