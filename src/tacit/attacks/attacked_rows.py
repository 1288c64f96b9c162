"""Rows whose membership an attack guesses, and what a model shows of each.

A signal says how sure the model is of a record. Of classes it is ln(p/(1 - p)) of its class, which
LiRA takes for normal (arXiv:2112.03570, section IV.C). Of any other target it is minus the
logarithm of the loss. A record with several rows has their mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit.attacks.measured import ScoreVector
from tacit.models import Model

_BATCH = 1024
_LEAST_LOSS = 1e-9
_LEAST_CHANCE = 1e-12
RecordNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RecordRows:
    """x (n, *shape) and y (n, ...). record (n,): the number of the record that a row is of."""

    x: torch.Tensor
    y: torch.Tensor
    record: RecordNumbers

    @classmethod
    def each_alone(cls, x: torch.Tensor, y: torch.Tensor) -> RecordRows:
        """Return rows of which each is a record."""
        return cls(x, y, np.arange(len(y)))

    @property
    def records(self) -> int:
        """How many records there are."""
        return int(self.record.max(initial=-1)) + 1

    def per_record(self, values: ScoreVector) -> ScoreVector:
        """Return the mean (records,) of values of rows (n,)."""
        counts = np.bincount(self.record, minlength=self.records)
        sums = np.bincount(self.record, weights=values, minlength=self.records)
        means: ScoreVector = np.divide(sums, counts, dtype=np.float64)
        return means

    def signals(self, model: Model, params: torch.Tensor) -> ScoreVector:
        """Return the model's signal of each record (records,), higher where it is surer."""
        return self.per_record(_signals(model, params, self.x, self.y))

    def classes(self) -> RecordNumbers:
        """Return the class of each record (records,); 0 where the target is no whole number."""
        labels = np.zeros(self.records, np.int64)
        if self.y.ndim == 1 and not self.y.is_floating_point():
            labels[self.record] = self.y.numpy()
        return labels


@torch.no_grad()
def _signals(model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> ScoreVector:
    parts = [
        _of_batch(model, model.logits(params, inputs), labels)
        for inputs, labels in zip(torch.split(x, _BATCH), torch.split(y, _BATCH), strict=True)
    ]
    signals: ScoreVector = torch.cat(parts).numpy()
    return signals


def _of_batch(model: Model, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if model.objective is None and y.ndim == 1 and not y.is_floating_point():
        chances = model.probabilities(scores.double())
        chance = chances.gather(-1, y.unsqueeze(-1)).squeeze(-1)
        # The others are added up, as 1 - p would be 0 of a p that is nearly 1.
        others = chances.sum(-1) - chance if chances.shape[-1] < 2 else _others(chances, y)
        return chance.clamp_min(_LEAST_CHANCE).log() - others.clamp_min(_LEAST_CHANCE).log()
    losses = model.data_loss(scores, y).double()
    return -losses.reshape(len(y), -1).mean(-1).clamp_min(_LEAST_LOSS).log()


def _others(chances: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return chances.scatter(-1, y.unsqueeze(-1), 0.0).sum(-1)


def losses(model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the loss of each row (n,), float64."""
    with torch.no_grad():
        values = model.data_loss(model.logits(params, x), y).double()
    return values.reshape(len(y), -1).mean(-1)
