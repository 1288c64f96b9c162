"""The area under the ROC curve, and the average precision, by ranks."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def area(scores: Tensor, is_it: Tensor) -> float:
    """Return the AUC by ranks (Mann and Whitney), averaged over ties; nan for an empty side."""
    positive = int(is_it.sum())
    negative = len(is_it) - positive
    if not positive or not negative:
        return math.nan
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0).double() - (count.double() - 1) / 2)[place]
    return (float(ranks[is_it].sum()) - positive * (positive + 1) / 2) / (positive * negative)


def average_precision(scores: Tensor, is_it: Tensor) -> float:
    """Return the mean precision over all of "it", each at the threshold that just names it.

    Examples of one score are named together. It is nan where none is "it".
    """
    positive = int(is_it.sum())
    if not positive:
        return math.nan
    values, place = torch.unique(scores, return_inverse=True)
    right = torch.bincount(place, is_it.double(), len(values)).flip(0)
    named = torch.bincount(place, minlength=len(values)).flip(0).cumsum(0)
    return float((right * right.cumsum(0) / named).sum()) / positive
