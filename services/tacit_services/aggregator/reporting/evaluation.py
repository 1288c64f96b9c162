"""Evaluation on the public test set, in a thread beside training.

It works on a copy of the parameters.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.base.server import ServerRole
from tacit.config.definition import Definition
from tacit.datasets import Dataset
from tacit.errors import ConfigError
from tacit.models import Model
from tacit_services.aggregator.reporting.early_stop import EarlyStop

# version, accuracy, loss, test rows, metrics
Record = Callable[[int, float, float, int, dict[str, float]], None]
log = logging.getLogger("tacit.evaluator")


def public_sample(definition: Definition[Any], test: Dataset) -> Dataset:
    """Return the rows of `test` that are used while training; all, where they are few."""
    if definition.evaluation.samples >= len(test):
        return test
    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(definition.run.seed))
    return test.take(chosen[: definition.evaluation.samples])


class Points:
    """The series of evaluations.

    A point is made every `evaluation.every` versions on a fixed public subset of the test set, and
    the last one on all of it.
    """

    def __init__(
        self,
        definition: Definition[Any],
        model: Model,
        test: Dataset,
        sample: Dataset,
        record: Record,
        early_stop: EarlyStop | None = None,
    ) -> None:
        """sample: the `public_sample` of `test`. early_stop: looks at the points; None: nothing."""
        self._early_stop = early_stop
        self._every = definition.evaluation.every
        self._model = model
        self.test = test
        self.sample = sample
        self._record = record
        self._metrics = definition.metrics()
        self._due = 0

    def due(self, version: int) -> bool:
        """Return whether a point is to be made at `version`; if so, the next one is later."""
        if version < self._due:
            return False
        self._due = version - version % self._every + self._every
        return True

    def measure(self, version: int, params: torch.Tensor, data: Dataset) -> None:
        """Evaluate on `data`, and add the point. Raises ConfigError where a user's metric does."""
        evaluation, metrics = self._metrics.measure(self._model, params, data)
        stop = self._early_stop
        # The file first: a point whose model is lost would be worse than a model without a point.
        if stop is not None and data is self.sample:
            stop.offer(version, evaluation.accuracy, evaluation.loss, params)
        self._record(version, evaluation.accuracy, evaluation.loss, len(data), metrics)
        if stop is not None:
            stop.look()


class Evaluator:
    """The maker of evaluation points beside training, which does not wait for it.

    If a point takes longer than training does, some are left out.
    """

    def __init__(self, points: Points | None) -> None:
        """points: None where there is no test set, so nothing to do."""
        self._points = points
        self._last: ServerRole | None = None
        self._work: queue.Queue[tuple[int, torch.Tensor, Dataset] | None] = queue.Queue(maxsize=1)
        self._thread = threading.Thread(target=self._loop, name="evaluator", daemon=True)
        self._thread.start()

    def offer(self, role: ServerRole) -> None:
        """Hand the point due to the evaluator; the driver thread calls it, and it never blocks."""
        if self._points is None:
            return
        self._last = role
        # None: a vertical run's, which nobody has answered yet.
        due = role.evaluation_input(self._points.sample)
        if self._work.full() or due is None or not self._points.due(due[0]):
            return
        # The fold replaces `params`, it never writes into them: no copy is needed.
        self._work.put_nowait(due)

    def close(self) -> None:
        """Finish, and evaluate the final model on the whole test set. Idempotent."""
        if not self._thread.is_alive():
            return
        self._work.put(None)
        self._thread.join()
        if self._last is None or self._points is None:
            return
        if due := self._last.evaluation_input(self._points.test):
            self._measure(*due)

    def _loop(self) -> None:
        while (item := self._work.get()) is not None:
            self._measure(*item)
            del item  # a copy of the model would stay until the next point

    def _measure(self, version: int, params: Tensor, data: Dataset) -> None:
        assert self._points is not None
        try:
            self._points.measure(version, params, data)
        # metrics.jsonl cannot be written, or a user's metric fails: on without this point.
        except (OSError, ConfigError) as error:
            log.warning("evaluation at version %d not recorded: %s", version, error)
