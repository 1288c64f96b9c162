"""The models that a run's results have beside the last one: the average, and the best.

Both are post-processing of models that were sent: they cost no ε.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.base.looks import Looks
from tacit.algorithms.base.model_average import ModelAverage
from tacit.config.definition import Definition
from tacit.datasets import Dataset
from tacit.models import Model
from tacit.models.answers import MetricInputs
from tacit.models.building import answers
from tacit.models.calibration import Calibration, calibration
from tacit_services.aggregator.reporting.best_model import BEST
from tacit_services.aggregator.reporting.early_stop import EarlyStop
from tacit_services.disk import files
from tacit_services.journal.weights import Weights
from tacit_services.transport.json_numbers import finite_or_none

AVERAGED = "averaged.safetensors"


@dataclass(frozen=True, slots=True)
class OtherModels:
    """What a run has besides its last model; None: it has no such model."""

    average: ModelAverage | None = None
    early_stop: EarlyStop | None = None
    looks: Looks | None = None

    def write(
        self, folder: Path, definition: Definition[Any], model: Model, test: Dataset | None
    ) -> dict[str, Any]:
        """Write the average into `folder`, and the best by looks; return summary's `models`.

        The best by a public test set lies among the results already. test: the whole public test
        set, on which each is measured. Raises OSError.
        """
        entries = {}
        for name, path, facts, params in self._models(folder, model):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            entries[name] = {"file": path.name, "model_sha256": digest, **facts}
            if test is not None:
                entries[name] |= on_test(definition, model, params, test)
        return entries

    def _models(
        self, folder: Path, model: Model
    ) -> Iterator[tuple[str, Path, dict[str, int], Tensor]]:
        if self.average is not None and (mean := self.average.mean()) is not None:
            files.write_pieces(folder / AVERAGED, Weights(model, mean).pieces, None)
            yield "averaged", folder / AVERAGED, {"since": self.average.since}, mean
        if self.early_stop is not None and (best := self.early_stop.best.read()) is not None:
            evaluation, params = best
            yield "best", self.early_stop.best.path, {"version": evaluation.version}, params
        elif self.looks is not None and (judged := self.looks.best()) is not None:
            look, params = judged
            files.write_pieces(folder / BEST, Weights(model, params).pieces, None)
            yield "best", folder / BEST, {"version": look.version, "look": look.number}, params


def on_test(
    definition: Definition[Any], model: Model, params: Tensor, test: Dataset
) -> dict[str, Any]:
    """Return accuracy (None of a number), loss, metrics and calibration on the whole test set."""
    answered, metrics = definition.metrics().measure(model, params, test)
    entry = {
        "accuracy": finite_or_none(answered.accuracy),
        "loss": answered.loss,
        "metrics": metrics,
    }
    if (believed := calibrated(definition, model, params, test)) is not None:
        entry["calibration"] = asdict(believed)
    return entry


def calibrated(
    definition: Definition[Any], model: Model, params: Tensor, test: Dataset
) -> Calibration | None:
    """Return what the model's probabilities are worth; None where it gives none.

    That is where the target is no class, or the output is for a loss of one's own.
    """
    if definition.source.target.kind != "classes" or not len(test):
        return None
    answered = answers(model, params, test, MetricInputs(scores=True, guesses=True))
    if answered.scores is None or answered.guesses is None:
        return None
    probabilities = model.probabilities(answered.scores)
    if probabilities.shape != (len(test), test.classes) or not torch.isfinite(probabilities).all():
        return None
    return calibration(probabilities, answered.y)
