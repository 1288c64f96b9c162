"""A model's answers to a test set: what every metric is a function of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class MetricInputs(NamedTuple):
    """The part of all answers that is kept beside accuracy and loss; a text has too many scores."""

    scores: bool
    guesses: bool


NOTHING_KEPT = MetricInputs(scores=False, guesses=False)


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """All answers to a test set.

    accuracy: nan where there are no classes. loss: the mean of an example's. token_loss: that of a
    token, over all places where one is learnt; nan where there are none, or no scores of them.
    scores: (n, classes), or (n, 1) of a number, where they are kept. guesses: (n,), where there are
    classes and they are kept. y: (n,).
    """

    accuracy: float
    loss: float
    scores: Tensor | None
    guesses: Tensor | None
    y: Tensor
    token_loss: float = math.nan
