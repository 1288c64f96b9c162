"""Evaluation on the public test set, beside training: its own thread, on a copy of the parameters."""

from __future__ import annotations

import logging
import queue
import threading

import torch

from services.aggregator.observer import Observer
from tacit.algorithms.mapa import Server
from tacit.config import RunFile
from tacit.datasets import Dataset
from tacit.models import Model, evaluate

log = logging.getLogger("tacit.evaluator")


class Evaluator:
    """Evaluates every `evaluation.every` applied updates on a fixed public subset, and at the end on all of it.

    If evaluating takes longer than training does, points are left out; training never waits.
    """

    def __init__(self, run: RunFile, model: Model, test: Dataset, observer: Observer) -> None:
        self._every, self._model, self._test, self._observer = run.evaluation.every, model, test, observer
        self._sample = test
        if run.evaluation.samples < len(test):
            chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(run.run.seed))
            self._sample = test.take(chosen[: run.evaluation.samples])
        self._due = 0
        self._last: Server | None = None
        self._work: queue.Queue[tuple[int, torch.Tensor] | None] = queue.Queue(maxsize=1)
        self._thread = threading.Thread(target=self._loop, name="evaluator", daemon=True)
        self._thread.start()

    def offer(self, role: Server) -> None:
        """Called by the driver thread between batches; never blocks."""
        self._last = role
        if role.version < self._due or self._work.full():
            return
        self._due = role.version - role.version % self._every + self._every
        # The fold replaces `params`, it never writes into them: no copy is needed.
        self._work.put_nowait((role.version, role.params))

    def close(self) -> None:
        """Finish, and evaluate the final model on the whole test set. Idempotent."""
        if not self._thread.is_alive():
            return
        self._work.put(None)
        self._thread.join()
        if self._last is not None:
            self._measure(self._last.version, self._last.params, self._test)

    def _loop(self) -> None:
        while (item := self._work.get()) is not None:
            try:
                self._measure(*item, self._sample)
            except OSError as error:  # metrics.jsonl cannot be written: training goes on without this point
                log.warning("evaluation at version %d not recorded: %s", item[0], error)

    def _measure(self, version: int, params: torch.Tensor, data: Dataset) -> None:
        accuracy, loss = evaluate(self._model, params, data)
        self._observer.point(version, accuracy, loss, len(data))
