"""Whether a classifier's probabilities can be believed: log loss, Brier score and reliability.

    p     (n, classes): the probabilities that the model gives
    y     (n,): the class that each row has

The log loss is the mean of -log p[y], where p is 1e-15 at least. The Brier score is
the mean squared distance of p from what was: over all classes, and of two classes of the second
alone. Both are proper scoring rules: nothing beats the true probabilities. Accuracy is none. It
does not see that a model is too sure.

Reliability: rows are put into ten bins of equal width, by the probability of the second of two
classes, or of more than two by that of the guess. A bin has the mean of these probabilities, the
share of rows where it came true, and how many rows. Of a calibrated model the first two are alike.
Their mean distance, weighted by rows, is the expected calibration error (Guo et al.,
arXiv:1706.04599).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 10
_LEAST = 1e-15


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of rows: mean probability, the share that came true, and how many rows."""

    predicted: float
    observed: float
    rows: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """What probabilities are worth on a test set, beside the classes' shares as a constant answer.

    error: the expected calibration error. bins: those that have rows. log_loss_better,
    brier_better: whether it beats the constant by over two standard errors of the difference, row
    by row.
    """

    log_loss: float
    brier: float
    error: float
    log_loss_better: bool
    brier_better: bool
    bins: tuple[Bin, ...]


def calibration(probabilities: Tensor, y: Tensor) -> Calibration:
    """Return what `probabilities` (n, classes) are worth for the classes y (n,), n >= 1."""
    p = probabilities.double()
    constant = shares(y, p.shape[1]).expand_as(p)
    logs = log_losses(p, y)
    distances = brier_scores(p, y)
    bins = _bins(p, y)
    error = sum(each.rows * abs(each.predicted - each.observed) for each in bins) / len(y)
    return Calibration(
        log_loss=float(logs.mean()),
        brier=float(distances.mean()),
        error=error,
        log_loss_better=_beyond_chance(log_losses(constant, y) - logs),
        brier_better=_beyond_chance(brier_scores(constant, y) - distances),
        bins=bins,
    )


def shares(y: Tensor, classes: int) -> Tensor:
    """Return the share of each class among y (n,), float64: the best constant probabilities."""
    return torch.bincount(y, minlength=classes).double() / len(y)


def log_losses(p: Tensor, y: Tensor) -> Tensor:
    """Return -log p[y] of each row."""
    return -p.gather(1, y[:, None]).flatten().clamp_min(_LEAST).log()


def brier_scores(p: Tensor, y: Tensor) -> Tensor:
    """Return the squared distance of each row's p from its class; of two classes, of the second."""
    truth = torch.nn.functional.one_hot(y, p.shape[1]).double()
    distances = (p - truth) ** 2
    if p.shape[1] == 2:
        return distances[:, 1]
    return distances.sum(1)


def _bins(p: Tensor, y: Tensor) -> tuple[Bin, ...]:
    if p.shape[1] == 2:
        predicted = p[:, 1]
        true = (y == 1).double()
    else:
        predicted, guess = p.max(1)
        true = (y == guess).double()
    places = (predicted * BINS).long().clamp(0, BINS - 1)
    filled = []
    for place in range(BINS):
        of_it = places == place
        rows = int(of_it.sum())
        if rows:
            filled.append(Bin(float(predicted[of_it].mean()), float(true[of_it].mean()), rows))
    return tuple(filled)


def _beyond_chance(gains: Tensor) -> bool:
    """Return whether the mean of `gains` is above 0 by over two standard errors."""
    error = float(gains.std(correction=0)) / math.sqrt(len(gains))
    return float(gains.mean()) > 2 * error
