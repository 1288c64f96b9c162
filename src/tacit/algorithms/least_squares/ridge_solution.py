"""The head of least squares, solved from noisy second moments.

Paper: Wang, "Revisiting differentially private linear regression" (arXiv:1803.02596); Mehta et al.,
"Towards Large Scale Transfer Learning for Differentially Private Image Classification" (TMLR 2023),
section 4, whose "DP-LS" it is, without sampling.

| here   | paper | meaning |
|--------|-------|---------|
| square | XᵀX   | second moments of rows with their constant, (D, D) |
| cross  | Xᵀy   | of rows with their targets, (D, K) |
| ridge  | λ     | here a public function of the noise |

Everything here is post-processing of what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.privacy.private_sum.moment_rows import CONSTANT, SHARE

_LEAST_STRETCH, _MOST_STRETCH = 0.1, 10.0
_MOST_EXPLAINED = 0.9


def unpacked(moments: Tensor, features: int) -> tuple[Tensor, Tensor]:
    """Return (D, D), symmetric, and (D, K), of a vector (W,) as `moment_sums.packed` makes it."""
    half = features * (features + 1) // 2
    upper = torch.zeros(features, features, dtype=moments.dtype)
    rows, columns = torch.triu_indices(features, features)
    upper[rows, columns] = moments[:half]
    return upper + upper.T - torch.diag(upper.diagonal()), moments[half:].view(features, -1)


def noise_ridge(deviation: float, features: int, strength: float) -> float:
    """Return λ: `strength` times the norm that noise alone gives a matrix of moments.

    deviation: of the noise in an entry beside the diagonal. A symmetric matrix of such noise has
    eigenvalues up to 2·deviation·√D.
    """
    return strength * 2 * deviation * math.sqrt(features)


@dataclass(frozen=True)
class Solution:
    """What solves for rows' targets.

    weights: (XᵀX + λ)^-1·Xᵀy, (D, K) float64. fit: tr(weightsᵀ·Xᵀy), without what noise adds to it
    on average, as it is in both. spread: tr(weightsᵀ·XᵀX·weights), of scores as they are, noisy.
    """

    weights: Tensor
    fit: float
    spread: float

    @property
    def stretch(self) -> float:
        """The factor at which the weights fit best: the ridge shortens them, noise makes longer."""
        if not (self.spread > 0 and self.fit > 0):
            return _LEAST_STRETCH
        return min(max(self.fit / self.spread, _LEAST_STRETCH), _MOST_STRETCH)

    def explained(self, length: float) -> float:
        """Return the share of the targets' squared `length` that is explained, 0 … 0.9."""
        if self.spread <= 0 or length <= 0:
            return 0.0
        explained = self.stretch * (2 * self.fit - self.stretch * self.spread) / length
        return min(max(explained, 0.0), _MOST_EXPLAINED)


def solution(square: Tensor, cross: Tensor, ridge: float, deviation: float) -> Solution:
    """Return the solution for XᵀX (D, D) and Xᵀy (D, K), with what is negative of XᵀX taken for 0.

    deviation: of the noise in an entry of Xᵀy. Where there is neither noise nor ridge, directions
    that no row has are left out.
    """
    positive, basis = torch.linalg.eigh(square)
    positive = positive.clamp(min=0)
    values = positive + ridge
    least = 1e-9 * float(values.max().clamp(min=1e-300))
    inverse = torch.where(values > least, 1 / values.clamp(min=least), 0.0)
    along = basis.T @ cross
    weights = inverse[:, None] * along
    noise = cross.shape[1] * deviation**2
    fit = float((weights * along).sum()) - noise * float(inverse.sum())
    spread = float((positive[:, None] * weights**2).sum())
    return Solution(basis @ weights, fit, spread)


def logit_gain(solved: Solution, square: Tensor, classes: int, deviation: float) -> float:
    """Return what scores of least squares are multiplied by, so that they are logits.

    For classes of equal shape and size about their means, discriminant analysis has logits of the
    same direction: K√(1 - 1/K)/(1 - R²) times as long. Rows were divided by their length, which is
    estimated from what that has made of their constant. Neither changes which class is the first.
    """
    length = float(square.diagonal().sum())
    if length <= 0:
        return 1.0
    constant = max(float(square[-1, -1]), 2 * deviation, 1e-6 * length)
    unexplained = 1 - solved.explained(SHARE**2 * length)
    gain = solved.stretch * math.sqrt(classes * (classes - 1)) / unexplained
    return gain / SHARE * math.sqrt(min(constant / length, 1.0)) / CONSTANT
