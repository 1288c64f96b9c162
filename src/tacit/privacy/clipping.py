"""Per-example clipping: the step that bounds what one record can do to a release."""

# B examples (padding included), d parameters

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_SLACK = 1.0 - 2.0**-16  # float32 rounding of norm, factor and product stays below this, so ||clipped|| <= C
_LEAST = 2.0**-40  # far below any useful C; squares of float32 numbers this small still count
_HUGE = 2.0**60  # a longer row is an overflow under way: its factor would have lost its digits; it counts as non-finite
_CACHED = 2**18  # elements worked on at a time: what stays in a core's cache between the passes
_BLOCK = 2048  # columns whose squares are added in float32: over a whole long vector that loses 1e-3 of the norm


@dataclass(frozen=True, slots=True)
class Clipped:
    """A sum of clipped vectors with the sensitivity that the clipping gives it.

    total: (d,) float32, or int64 counts of `step` (`integer_sum`). sensitivity: l2 distance, in real units, that
    adding or removing one record can move `total`.
    """

    total: Tensor
    sensitivity: float
    step: float | None = None


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
    gradients, factors = _factors(gradients, clip, mask)
    return Clipped(factors.to(gradients.dtype) @ gradients, clip)


def outer_sum(deltas: Tensor, inputs: Tensor, clip: float, mask: Tensor) -> Clipped:
    """`clipped_sum` of a linear layer's gradients without ever writing them: row i is (δ_i ⊗ x_i, δ_i).

    deltas: δ (B, o) float32, d loss / d output; inputs: x (B, i) float32; mask: (B,) bool. Returns o·i + o numbers:
    the weight, row-major, then the bias. The norm of a row is ||δ||·sqrt(||x||² + 1), in float64, and the sum over the
    rows is one product of matrices ("ghost clipping": Goodfellow, arXiv:1510.01799; Lee and Kifer, arXiv:2009.03106).
    Formal guarantee and edge cases as `clipped_sum`; a row is non-finite where its δ or its x is.
    """
    (clipped,) = outer_sums(deltas, inputs, [clip], mask, [len(mask)])
    return clipped


def outer_sums(
    deltas: Tensor, inputs: Tensor, clips: Sequence[float], mask: Tensor, sizes: Sequence[int]
) -> list[Clipped]:
    """`outer_sum` of consecutive parts, of `sizes` rows each, at its own clip each. To the bit what it gives alone."""
    reach = _norms64(inputs)
    norms = torch.where(reach <= _HUGE, _norms64(deltas) * torch.sqrt(reach**2 + 1), math.inf)
    parts = zip(torch.split(norms, list(sizes)), clips, torch.split(mask, list(sizes)), strict=True)
    factors = torch.cat([_clip_factors(*part) for part in parts])
    used = (norms <= _HUGE)[:, None]
    scaled = torch.where(used, factors[:, None] * deltas, 0.0).to(deltas.dtype)  # (B, o); the product in float64
    if not bool(used.all()):
        inputs = inputs.masked_fill(~used, 0.0)  # 0·inf is nan
    pairs = zip(torch.split(scaled, list(sizes)), torch.split(inputs, list(sizes)), clips, strict=True)
    return [Clipped(torch.cat(((part.T @ x).flatten(), part.sum(0))), clip) for part, x, clip in pairs]


def integer_sum(gradients: Tensor, clip: float, mask: Tensor, step: float) -> Clipped:
    """The same sum on the grid of `step`: each clipped row is truncated toward zero to whole steps, then added.

    gradients: (B, d) float32; mask: (B,) bool; B·clip/step < 2^53, clip/step <= 2^12 (so that float32 holds every
    square and every sum of a block exactly). Returns int64 counts of `step`.
    Formal guarantee: the l2 norm of each row's integers is checked, in integers, to be at most clip/step, and they
    are added exactly: the sensitivity of the sum is `clip` without any rounding. Truncation shortens, so it needs no
    allowance for d; it moves the sum by less than one step a row. Edge cases as `clipped_sum`; a row whose integers
    were too long (it cannot be: the factor leaves 2^-16 of room) would contribute zero.
    """
    gradients, factors = _factors(gradients, clip, mask)
    factors = (factors / step).to(gradients.dtype)
    limit = math.floor((clip / step) ** 2 * (1 + 2.0**-40))  # (clip/step)² is whole up to its own rounding
    if limit > 2**24:
        raise ValueError(f"step={step}: more than 2^12 steps in clip={clip}")
    total = torch.zeros(gradients.shape[1], dtype=torch.float64, device=gradients.device)
    exact = int(2**24 * step / clip)  # rows whose sum float32 holds exactly, however they are aligned
    rows = max(1, min(exact, _CACHED // max(1, gradients.shape[1])))
    for part, factor in zip(torch.split(gradients, rows), torch.split(factors, rows), strict=True):
        units = torch.mul(part, factor[:, None])
        units.copy_(units.to(torch.int32))  # cuts toward zero, eight times faster than torch.trunc
        fits = torch.linalg.vecdot(units, units) <= limit
        total += fits.to(units.dtype) @ units
    return Clipped(total.to(torch.int64), clip, step)


def _factors(gradients: Tensor, clip: float, mask: Tensor) -> tuple[Tensor, Tensor]:
    """`gradients` without its non-finite rows, and (B,) float64 min(1, C/norm), 0 where masked out or non-finite."""
    norms = _norms(gradients)
    finite = torch.isfinite(norms)
    if not bool(finite.all()):
        gradients = gradients.masked_fill(~finite[:, None], 0.0)  # 0·inf is nan
    return gradients, _clip_factors(norms, clip, mask)


def _clip_factors(norms: Tensor, clip: float, mask: Tensor) -> Tensor:
    if not _LEAST <= clip < float("inf"):
        raise ValueError(f"clip={clip}: expected a finite number, at least {_LEAST:.1e}")
    return torch.where((norms <= _HUGE) & mask, (clip * _SLACK / norms).clamp(max=1.0), 0.0)


def _norms64(rows: Tensor) -> Tensor:
    """(B,) float64 l2 norms, in float64 throughout."""
    parts = torch.split(rows, max(1, _CACHED // max(1, rows.shape[1])))  # dtype=float64 for the whole is 10x slower
    return torch.cat([torch.linalg.vector_norm(part.to(torch.float64), dim=1) for part in parts])


def _norms(gradients: Tensor) -> Tensor:
    """(B,) float64 l2 norms: float32 inside a block of columns, float64 across blocks."""
    blocks = [torch.linalg.vector_norm(block, dim=1) for block in torch.split(gradients, _BLOCK, dim=1)]
    norms: Tensor = torch.linalg.vector_norm(torch.stack(blocks).to(torch.float64), dim=0)
    return norms
