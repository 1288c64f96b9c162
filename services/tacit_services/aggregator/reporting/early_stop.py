"""`run.stop`: the end of a run whose evaluations show no gain any more.

It looks at the series of evaluations alone, which a restart reads back from metrics.jsonl. A
process that was killed before its Halt was in the journal comes to the same answer again. One that
was killed afterwards finds the run halted. So the run ends once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.config.definition import Definition
from tacit.datasets import Dataset
from tacit.models import Model, best_constant
from tacit.models.building import loss_is_log_loss
from tacit.models.stopping import Baseline, Evaluated, no_better
from tacit_services.aggregator.reporting.best_model import BestModel
from tacit_services.aggregator.reporting.end_reasons import NO_BETTER
from tacit_services.transport.json_numbers import finite_or_none

PointsSoFar = Callable[[], list[dict[str, Any]]]


def watch(
    definition: Definition[Any],
    model: Model,
    sample: Dataset,
    series: PointsSoFar,
    out: Path,
    run: str,
) -> EarlyStop | None:
    """Return what looks at the evaluations of this run; None where it never ends early.

    out: the folder for its best model. run: its id.
    """
    if definition.run.stop == "never":
        return None
    best = BestModel(out, model, f"{run} {definition.fingerprint}")
    return EarlyStop(definition.run.updates, model, sample, series, best)


class EarlyStop:
    """The watch over one run's evaluations, in the thread that makes them.

    reason: why the run is to end; "" while it is not. Any thread may read it.
    """

    def __init__(
        self, horizon: int, model: Model, sample: Dataset, series: PointsSoFar, best: BestModel
    ) -> None:
        """horizon: `run.updates`. sample: the rows of every evaluation. series: of them, so far."""
        self._horizon = horizon
        self._samples = len(sample)
        self._series = series
        self.best = best
        self.reason = ""
        constant = best_constant(model, sample)
        if constant is None:
            self._baseline = Baseline()
        else:
            loss = constant.loss
            if loss_is_log_loss(model):
                loss = constant.log_loss
            self._baseline = Baseline(constant.accuracy, loss)

    def resume(self, version: int) -> None:
        """Go on with the best model of the process before this one, and look at its series."""
        self.best.resume(version)
        self.look()

    def offer(self, version: int, accuracy: float, loss: float, params: Tensor) -> None:
        """Keep the model that an evaluation is of, if it is the best so far. Raises OSError."""
        self.best.offer(Evaluated(version, finite_or_none(accuracy), loss, self._samples), params)

    def look(self) -> None:
        """Look whether the evaluations so far show no gain."""
        points = [
            Evaluated(point["version"], point["accuracy"], point["loss"], point["samples"])
            for point in self._series()
            if point["samples"] == self._samples
        ]
        if no_better(points, self._horizon, self._baseline):
            self.reason = (
                f"{NO_BETTER}: the evaluations since update {points[-1].version // 2} show no gain "
                "beyond its uncertainty"
            )
