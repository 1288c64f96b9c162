"""Sums that round to the grid with one defect each, for the audits of questions and of looks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.private_sum.rounded_sums import Integers, RoundedSums
from tacit.questions.row_parts import Entries


class Trusting(RoundedSums):
    """Checks no norm, as a row's vector is short enough by itself."""

    def _rounded(self, vectors: Entries, clip: float, step: float) -> Integers:
        return _nearest(vectors.values.astype(np.float64) / step)


class NearestStep(RoundedSums):
    """Clips, then rounds to the nearest step and does not check the norm again."""

    def _rounded(self, vectors: Entries, clip: float, step: float) -> Integers:
        return _nearest(_clipped(vectors, clip) / step)


class CutToTheGrid(RoundedSums):
    """Rounds toward zero: each row loses up to a step, and many rows lose thousands."""

    def _rounded(self, vectors: Entries, clip: float, step: float) -> Integers:
        cut: Integers = np.trunc(_clipped(vectors, clip) / step).astype(np.int64)
        return cut


def _nearest(steps: NDArray[np.float64]) -> Integers:
    nearest: Integers = np.floor(steps + 0.5).astype(np.int64)
    return nearest


def _clipped(vectors: Entries, clip: float) -> NDArray[np.float64]:
    plain = vectors.values.astype(np.float64)
    norms = np.linalg.norm(plain, axis=1, keepdims=True)
    clipped: NDArray[np.float64] = plain * (clip / np.maximum(norms, clip))
    return clipped
