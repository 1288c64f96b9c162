"""What an edge counts of each held-out row, once a model has scored it: a vector.

The vector is that of several parts, one after the other, each times the square root of its share of
the budget. A part's vector is no longer than 1. So the whole is not, and one Gaussian release has
all figures of a look. A row's vector depends on that row, the model and public constants alone.

Of two classes:

    guesses    (right, wrong), one-hot; half of the budget, as it is what models are compared by
    scores     one-hot: the class, and the cell of BINS that the second class's probability is in

Of more classes:

    guesses    (right, wrong), one-hot; half of the budget
    classes    one-hot: the class, and whether it was guessed
    scores     one-hot: whether it was guessed, and the cell of BINS of the guess's probability

Of a number, u is the error over the largest that counts, `reach`, and v the number itself, scaled
from its public bounds to [-1, 1]. Both are cut at [-1, 1]:

    errors     (1, |u|, u²) over √3; three quarters of the budget
    numbers    (1, v, v²) over √3: how well the mean alone would do
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.datasets.target import Target
from tacit.errors import ConfigError

# Cells of a probability: finer at both ends, where those of rare classes are.
BINS: Final = (0.0, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 1.0)
CELLS: Final = len(BINS) - 1
EVEN: Final = BINS.index(0.5)  # the first cell in which the second class is guessed
MOST_CLASSES = 1000
_ROOT: Final = math.sqrt(3.0)
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LookPart:
    """A part of a row's vector. place: its numbers. scale: what they are multiplied by."""

    place: slice
    scale: float

    @property
    def width(self) -> int:
        """The numbers of the part."""
        return int(self.place.stop - self.place.start)


@dataclass(frozen=True, slots=True)
class NumberBounds:
    """What is public of a number that is guessed, in the scale of y. reach: the largest error."""

    low: float
    high: float
    reach: float


@dataclass(frozen=True, slots=True)
class LookSheet:
    """The parts of a row's vector, for one target. width: all its numbers. bounds: of a number."""

    target: Target
    parts: Mapping[str, LookPart]
    width: int
    bounds: NumberBounds | None = None

    @classmethod
    def of(cls, target: Target, bounds: NumberBounds | None = None) -> LookSheet:
        """Return the sheet of a target. Raises ConfigError for a kind that no look judges."""
        if target.kind == "classes" and len(target.names) <= MOST_CLASSES:
            count = len(target.names)
            if count == 2:
                return cls(target, *_placed({"guesses": (2, 0.5), "scores": (2 * CELLS, 0.5)}))
            parts = {
                "guesses": (2, 0.5), "classes": (2 * count, 0.25), "scores": (2 * CELLS, 0.25),
            }  # fmt: skip
            return cls(target, *_placed(parts))
        if target.kind == "number" and bounds is not None:
            return cls(target, *_placed({"errors": (3, 0.75), "numbers": (3, 0.25)}), bounds)
        raise ConfigError(
            f'evaluation.at="edges": judges classes, at most {MOST_CLASSES}, and numbers; the '
            f"target is of kind {target.kind}"
        )

    def vectors(self, answers: Tensor, y: Tensor) -> Vectors:
        """Return each row's vector (n, width), of length at most 1.

        answers: probabilities (n, classes), or guessed numbers (n,). y: as rows have it (n,).
        """
        vectors = np.zeros((len(y), self.width), np.float32)
        of_parts = self._of_number(answers, y) if self.bounds else self._of_classes(answers, y)
        for name, part in self.parts.items():
            vectors[:, part.place] = of_parts[name] * np.float32(part.scale)
        return vectors

    def _of_classes(self, answers: Tensor, y: Tensor) -> dict[str, Vectors]:
        probabilities = answers.nan_to_num(0.0, 0.0, 0.0).clamp(0, 1).double()
        labels = y.long().clamp(0, len(self.target.names) - 1)
        if len(self.target.names) == 2:
            second = probabilities[:, 1]
            wrong = (second >= BINS[EVEN]).long() != labels
            cells = labels * CELLS + _cells(second)
            return {"guesses": _one_hot(wrong, 2), "scores": _one_hot(cells, 2 * CELLS)}
        surest, guesses = probabilities.max(1)
        wrong = guesses != labels
        return {
            "guesses": _one_hot(wrong, 2),
            "classes": _one_hot(2 * labels + wrong, 2 * len(self.target.names)),
            "scores": _one_hot(wrong * CELLS + _cells(surest), 2 * CELLS),
        }

    def _of_number(self, answers: Tensor, y: Tensor) -> dict[str, Vectors]:
        assert self.bounds is not None
        low, high = self.bounds.low, self.bounds.high
        numbers = y.double()
        u = ((answers.double() - numbers) / self.bounds.reach).nan_to_num(1.0, 1.0, -1.0)
        v = (2 * numbers - (low + high)) / (high - low)
        return {"errors": _moments(u.clamp(-1, 1).abs()), "numbers": _moments(v.clamp(-1, 1))}


def _placed(parts: Mapping[str, tuple[int, float]]) -> tuple[dict[str, LookPart], int]:
    """Return the parts, each after the last, and all their numbers."""
    placed: dict[str, LookPart] = {}
    end = 0
    for name, (width, share) in parts.items():
        placed[name] = LookPart(slice(end, end + width), math.sqrt(share))
        end += width
    return placed, end


def _cells(probabilities: Tensor) -> Tensor:
    edges = torch.tensor(BINS[1:-1], dtype=torch.float64)
    return torch.bucketize(probabilities.contiguous(), edges, right=True)


def _one_hot(places: Tensor, width: int) -> Vectors:
    vectors = np.zeros((len(places), width), np.float32)
    vectors[np.arange(len(places)), places.long().numpy()] = 1
    return vectors


def _moments(u: Tensor) -> Vectors:
    moments: Vectors = (torch.stack([torch.ones_like(u), u, u * u], 1) / _ROOT).float().numpy()
    return moments
