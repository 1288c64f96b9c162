"""Scores as people read them, so that what adds up to a score has a unit.

Of two classes a score is the log odds of the second class. Of more it is the score of each class,
beside the mean of all. Of a number it is the number, in the table's unit.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from tacit.datasets.target import Target
from tacit.questions.row_parts import Reals


def output_names(target: Target) -> list[str]:
    """Return what each shown score is of."""
    if target.kind == "number":
        return ["added"]
    if len(target.names) == 2:
        return [f"log odds of {target.names[1]}"]
    return [f"score of {name}" for name in target.names]


def shown_scores(scores: Reals, target: Target) -> Reals:
    """Return (outputs, W) of the parts of scores (classes, W), of which the last is the intercept.

    target: classes or a number.
    """
    if target.kind == "number":
        low, high = _ends(target)
        shown: Reals = scores * (high - low)
        shown[:, -1] += low
        return shown
    if len(target.names) == 2:
        return scores[1:] - scores[:1]
    centred: Reals = scores - scores.mean(axis=0, keepdims=True)
    return centred


def shown_deviation(target: Target) -> float:
    """Return the deviation of a shown score, where each class's score has 1 and depends on none."""
    if target.kind == "number":
        low, high = _ends(target)
        return abs(high - low)
    if len(target.names) == 2:
        return math.sqrt(2.0)
    return math.sqrt(1 - 1 / len(target.names))


def of_the_highest(added: Reals) -> Reals:
    """Return (rows, parts) of what each part adds (outputs, rows, parts), of the highest score."""
    best = added.sum(axis=2).argmax(axis=0)
    chosen: Reals = added[best, np.arange(added.shape[1])]
    return chosen


def _ends(target: Target) -> tuple[float, float]:
    """Return the numbers that the scores 0 and 1 stand for."""
    low, high = target.unscaled(torch.tensor([0.0, 1.0])).tolist()
    return low, high
