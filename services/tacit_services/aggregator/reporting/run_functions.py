"""The functions of a run's additive model, with the band that the noise of its releases allows."""

from __future__ import annotations

import threading
from typing import Any

from tacit.config.definition import Definition
from tacit.exported.column_functions import ColumnFunctions, figures_read
from tacit.exported.functions_picture import picture
from tacit.models.additive import ADDITIVE, AdditiveModel
from tacit_services.aggregator.reading import RunReading


class RunFunctions:
    """The functions of one run, made once for each version that somebody asks for.

    The band takes seconds, so it comes when the run has ended. For any thread.
    """

    def __init__(self, definition: Definition[Any]) -> None:
        self._target = definition.source.target
        self._model: AdditiveModel | None = None
        if definition.model.name == ADDITIVE:
            model = definition.build_model()
            assert isinstance(model, AdditiveModel)
            self._model = model
        self._lock = threading.Lock()
        self._of: tuple[int, bool] | None = None  # version, and whether the run has ended
        self._functions: ColumnFunctions | None = None

    def document(self, reading: RunReading) -> dict[str, Any] | None:
        """Return them as JSON has them, with the version of the model; None: there are none."""
        now = self._now(reading)
        return None if now is None else {"version": reading.version, **now.document()}

    def picture(self, reading: RunReading) -> bytes | None:
        """Return them as an SVG file; None: there are none."""
        now = self._now(reading)
        return None if now is None else picture(now).encode()

    def _now(self, reading: RunReading) -> ColumnFunctions | None:
        if self._model is None or reading.bins is None:
            return None
        with self._lock:
            moment = reading.version, reading.halted
            if moment != self._of:
                figures = figures_read(reading.bins, self._target, noise=reading.halted)
                self._functions = ColumnFunctions(
                    self._model, reading.params, self._target, figures
                )
                self._of = moment
            return self._functions
