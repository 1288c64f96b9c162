"""The step of private additive boosting: what a noisy histogram of residuals says of each bin.

Of a bin with N rows, the histogram's number G is the sum of N residuals and noise. Its derivative
by the bin's score is H = hN. The variance of G is vN, of the rows, and s² of the noise of all
releases together. A score is small (deviation τ) and near its neighbours' (deviation λ) before
anything is seen. Then the most likely scores solve, column by column,

    (H²/(vN + s²) + 1/τ² + L/λ²)·θ = H/(vN + s²)·(G + Hθ)        L: the neighbours' differences

and a step goes a part η of the way. So a bin of few rows, or of much noise, follows its neighbours
and stays small: the width of bins needs no tuning, and no bin is merged by hand.

Everything is computed number by number in float64, in one order, so that a replay has the same
bits: the equations of a column are tridiagonal.

Shapes: c classes, W bins of all columns, the intercept the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.models.additive import AdditiveModel
from tacit.questions.row_parts import PlaceNumbers, Reals

_LEAST_ROWS = 1e-3  # a bin in which nobody was counted still has an equation


@dataclass(frozen=True, slots=True)
class Curvature:
    """What is assumed of a row's loss: its second derivative h, the variance v of its residual.

    prior: what 1/τ² and 1/λ² are multiplied by, as scores have another unit.
    """

    h: float
    v: float
    prior: float


def curvature(model: AdditiveModel) -> Curvature:
    """Return the assumptions for a target of classes, or for a number in [0, 1].

    Of classes: a probability is 0.8 or so where it is right, so that p(1 - p) is 0.6 of what it is
    at the start. A number's residual is 0.17 or so, and its functions 0.3.
    """
    if model.labels:
        each = 0.6 / model.labels
        return Curvature(each, each, 2.0)
    return Curvature(2.0, 0.12, 1 / 0.3**2)


class Prior:
    """1/τ² + L/λ² of the bins, as the diagonals of tridiagonal equations."""

    def __init__(self, model: AdditiveModel, size: float, smoothness: float) -> None:
        scale = curvature(model).prior
        self.diagonal = np.full(model.width, scale / size**2)
        self.diagonal[-1] = 0.0  # nothing is known of the intercept
        self.above = np.zeros(model.width)  # between a bin and the next one
        self._chains = _chains(model)
        for places in self._chains:
            joint = scale / smoothness**2 * places.shape[1] / 32
            self.above[places[:, :-1]] = -joint
            self.diagonal[places[:, :-1]] += joint
            self.diagonal[places[:, 1:]] += joint

    def times(self, scores: Reals) -> Reals:
        """Return the product (c, W) with scores (c, W)."""
        product: Reals = self.diagonal * scores
        product[:, :-1] += self.above[:-1] * scores[:, 1:]
        product[:, 1:] += self.above[:-1] * scores[:, :-1]
        return product

    def solved(self, more: Reals, right: Reals) -> Reals:
        """Return x (c, W) of (prior + diag(more))·x = right, by elimination from the first bin."""
        diagonal = self.diagonal + more
        solution: Reals = right / diagonal
        for places in self._chains:
            between = self.above[places[0, 0]]
            solution[:, places] = _eliminated(diagonal[places], between, right[:, places])
        return solution


def _chains(model: AdditiveModel) -> list[PlaceNumbers]:
    """Return the places (columns, bins) of columns of numbers, of each number of bins."""
    starts: dict[int, list[int]] = {}
    for column, start in zip(model.columns, model.starts, strict=False):
        if column.numeric:
            starts.setdefault(column.bins, []).append(start)
    return [np.array(each)[:, None] + np.arange(bins) for bins, each in starts.items()]


def _eliminated(diagonal: Reals, between: float, right: Reals) -> Reals:
    """Return the solution (c, k, b) of k columns' equations at once, with b bins each.

    diagonal: (k, b). between: what stands beside it, everywhere. right: (c, k, b).
    """
    ratio = np.zeros_like(diagonal)
    solution = np.zeros_like(right)
    ratio[:, 0] = between / diagonal[:, 0]
    solution[..., 0] = right[..., 0] / diagonal[:, 0]
    for place in range(1, diagonal.shape[1]):
        pivot = diagonal[:, place] - between * ratio[:, place - 1]
        ratio[:, place] = between / pivot
        solution[..., place] = (right[..., place] - between * solution[..., place - 1]) / pivot
    for place in range(diagonal.shape[1] - 2, -1, -1):
        solution[..., place] -= ratio[:, place] * solution[..., place + 1]
    return solution


def centred(model: AdditiveModel, step: Reals, rows: Reals) -> Reals:
    """Return the step (c, W) without what it adds to all rows alike, which is the intercept's."""
    step = step.copy()
    for column, start in zip(model.terms, model.starts, strict=False):
        part = slice(start, start + column.bins)
        mean = (step[:, part] * rows[part]).sum(axis=1, keepdims=True) / rows[part].sum()
        step[:, part] -= mean
    return step


def rows_of_bins(model: AdditiveModel, counted: Reals, noise: float | Reals) -> Reals:
    """Return rows (W,) of each bin, of noisy counts (W,) whose noise has this deviation, or these.

    None is below 0, and those of a term sum to all rows.
    """
    everybody = max(float(counted[-1]), 1.0)
    rows = np.maximum(counted - noise / 2, 0.0) + _LEAST_ROWS
    for column, start in zip(model.terms, model.starts, strict=False):
        part = rows[start : start + column.bins]
        rows[start : start + column.bins] = part * (everybody / float(part.sum()))
    rows[-1] = everybody
    return rows
