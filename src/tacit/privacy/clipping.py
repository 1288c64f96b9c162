"""Per-example clipping: the step that bounds what one record can do to a release."""

# B examples (padding included), d parameters

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SLACK = 1.0 - 2.0**-16  # float32 rounding of norm, factor and product stays below this, so ||clipped|| <= C
_LEAST = 2.0**-40  # far below any useful C; squares of float32 numbers this small still count
_BLOCK = 2048  # columns whose squares are added in float32: over a whole long vector that loses 1e-3 of the norm


@dataclass(frozen=True, slots=True)
class Clipped:
    """A sum of clipped vectors with the sensitivity that the clipping gives it.

    total: (d,) float32. sensitivity: l2 distance that adding or removing one record can move `total`.
    """

    total: Tensor
    sensitivity: float


def clipped_sum(gradients: Tensor, clip: float, mask: Tensor) -> Clipped:
    """Sum of g_i·min(1, C/||g_i||₂) over the rows where `mask` is True; C is `clip`.

    gradients: (B, d) float32; mask: (B,) bool.
    Formal guarantee: under add/remove adjacency the l2 sensitivity of the sum is `clip`: each masked row
    contributes a vector of norm at most C, and rows contribute independently of one another.

    | edge case                   | result                                                       |
    |-----------------------------|--------------------------------------------------------------|
    | no row, or mask all False   | zero vector, same sensitivity (the caller still adds noise)  |
    | a row with inf or nan       | contributes zero: a nan sum would release "a bad record"     |
    | a row of zeros              | contributes zero                                             |
    | clip < 2^-40, inf or nan    | ValueError: the noise scales with it                         |
    """
    if not _LEAST <= clip < float("inf"):
        raise ValueError(f"clip={clip}: expected a finite number, at least {_LEAST:.1e}")
    norms = _norms(gradients)
    finite = torch.isfinite(norms)
    factors = torch.where(finite & mask, (clip * _SLACK / norms).clamp(max=1.0), 0.0).to(gradients.dtype)
    if not bool(finite.all()):
        gradients = gradients.masked_fill(~finite[:, None], 0.0)  # 0·inf is nan
    return Clipped(factors @ gradients, clip)


def _norms(gradients: Tensor) -> Tensor:
    """(B,) float64 l2 norms: float32 inside a block of columns, float64 across blocks."""
    blocks = [torch.linalg.vector_norm(block, dim=1) for block in torch.split(gradients, _BLOCK, dim=1)]
    norms: Tensor = torch.linalg.vector_norm(torch.stack(blocks).to(torch.float64), dim=0)
    return norms
