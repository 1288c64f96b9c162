"""Per-example clipping: the step that bounds what one record can do to a release."""

# Shapes: B examples (empty slots included), d parameters.

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.kernels.layout import MAX_NORM
from tacit.kernels.loading import Library, library
from tacit.privacy.private_sum.sampling import Batch

_SLACK = 2.0**-16  # in units of C: more than rounding can add to a clipped row's norm
_MIN_CLIP = 2.0**-40  # far below any useful C; squares of float32 numbers this small are not lost
_MAX_ROWS = 2**24  # with more, rounding of the sum would take more than an eighth of C
MAX_INTEGER_ROWS = 2**18  # rows of at most 2^12 steps each, whose sum stays within 2^30
_CACHE_ELEMENTS = 2**18  # worked on at a time: they stay in a core's cache between the passes
_NORM_COLUMNS = 2048  # added in float32 at a time; a whole long vector would lose 1e-3 of its norm


@dataclass(frozen=True, slots=True)
class Clipped:
    """A sum of clipped vectors, with the sensitivity that clipping gives it.

    total: (d,) float64, or int64 counts of `step` (from `integer_sum`). sensitivity: the l2
    distance, in real units, by which adding or removing one record can move `total`, rounding
    included.
    """

    total: Tensor
    sensitivity: float
    step: float | None = None


def clipped_sum(gradients: Tensor, clip: float, mask: Tensor, rows: int | None = None) -> Clipped:
    """Return the sum of g_i·min(1, C'/||g_i||₂) over the rows where `mask` is True, in float64.

    gradients: (B, d) float32. mask: (B,) bool. rows: the size of the whole batch, if this is a part
    of it (B if None). C' is `clip`, made smaller by what rounding may add.

    Guarantee: let the other rows' gradients be the same with and without the record, to the bit.
    Then under add/remove adjacency the l2 sensitivity of the sum of all parts, as it is computed,
    is `clip`. Each masked row adds a vector of norm at most C' = C(1 - 2^-16 - 2B(B+2)u), u =
    2^-52. Float64 rounding moves the sum of B rows by at most B(B+2)u·C, in every order of adding
    (docs/privacy.md, "Rounding"). No branch, copy or size depends on a number in `gradients`.

    | edge case                   | result                                                       |
    |-----------------------------|--------------------------------------------------------------|
    | no row, or mask all False   | zero vector, same sensitivity (the caller still adds noise)  |
    | a row with inf or nan       | contributes zero: a nan sum would release "a bad record"     |
    | a row longer than 2^60      | contributes zero, as one with inf                            |
    | a row of zeros              | contributes zero                                             |
    | clip < 2^-40, inf or nan    | ValueError: the noise scales with it                         |
    | more than 2^24 rows         | ValueError: rounding would take an eighth of C               |
    """
    total = torch.zeros(gradients.shape[1], dtype=torch.float64, device=gradients.device)
    reduced = reduced_clip(clip, rows or len(gradients))
    if (kernels := _compiled(gradients)) is not None:
        kernels.clip_floats(gradients.numpy(), mask.numpy(), reduced, total.numpy())
        return Clipped(total, clip)
    block = max(1, _CACHE_ELEMENTS // max(1, gradients.shape[1]))
    for part, used in zip(torch.split(gradients, block), torch.split(mask, block), strict=True):
        wide = part.to(torch.float64)
        norms = torch.linalg.vector_norm(wide, dim=1)
        total += _factors(norms, reduced, used) @ _zero_unused(wide, norms <= MAX_NORM)
    return Clipped(total, clip)


def outer_sum(
    deltas: Tensor, inputs: Tensor, clip: float, mask: Tensor, rows: int | None = None
) -> Clipped:
    """Return `clipped_sum` of a linear layer's gradients (δ_i ⊗ x_i, δ_i) without writing them out.

    deltas: δ (B, o) float32, d loss / d output. inputs: x (B, i) float32. mask: (B,) bool. The
    total has o·i + o numbers: the weight, row-major, then the bias. The norm of a row is
    ||δ||·sqrt(||x||² + 1), and the sum over the rows is one product of matrices, both in float64
    ("ghost clipping": Goodfellow, arXiv:1510.01799, and Lee and Kifer, arXiv:2009.03106).

    Guarantee and edge cases as `clipped_sum`. A row is non-finite where its δ or its x is.
    """
    reduced = reduced_clip(clip, rows or len(mask))
    if (kernels := _compiled(deltas)) is not None and _compiled(inputs) is not None:
        index = np.arange(len(deltas))
        total = _outer_rows(kernels, deltas.numpy(), inputs, index, mask.numpy(), reduced)
        return Clipped(total, clip)
    lengths = _norms64(inputs)
    wide = deltas.to(torch.float64)
    norms = torch.linalg.vector_norm(wide, dim=1) * torch.sqrt(lengths**2 + 1)
    used = (norms <= MAX_NORM) & (lengths <= MAX_NORM)
    scaled = _zero_unused(wide, used).mul_(_factors(norms, reduced, mask & used)[:, None])
    return Clipped(_outer(scaled, inputs, used), clip)


def drawn_outer_sum(deltas: Tensor, table: Tensor, batch: Batch, clip: float) -> Clipped:
    """Return `outer_sum` over the slots of a batch, in a time that tells how many are not empty.

    deltas: (B, o), of every slot; table: (n, i), of which a slot has a row. Only for simulations.

    Guarantee: the bits of `outer_sum`, if that is compiled too: an empty slot adds zeros.
    """
    if (kernels := _compiled(deltas)) is None or _compiled(table) is None:
        return outer_sum(deltas, table[batch.index], clip, batch.mask)
    used = batch.mask.numpy()
    delta_rows = deltas.numpy()
    index = batch.index.numpy()
    reduced = reduced_clip(clip, len(used))
    drawn = np.flatnonzero(used)
    return Clipped(
        _outer_rows(kernels, delta_rows[drawn], table, index[drawn], used[drawn], reduced), clip
    )


def _outer_rows(
    kernels: Library,
    deltas: NDArray[np.float32],
    table: Tensor,
    index: NDArray[np.int64],
    used: NDArray[np.bool_],
    reduced: float,
) -> Tensor:
    """Return (o·i + o,) float64: Σ of (δ ⊗ x, δ) over the rows used, each clipped to `reduced`."""
    total = np.zeros(deltas.shape[1] * (table.shape[1] + 1))
    kernels.outer_floats(deltas, table.numpy(), index, used, reduced, total)
    return torch.from_numpy(total)


def _outer(scaled: Tensor, inputs: Tensor, used: Tensor) -> Tensor:
    """Return (o·i + o,) float64: Σ scaled_i ⊗ inputs_i over the rows used, then Σ scaled_i."""
    weight = torch.zeros(
        scaled.shape[1], inputs.shape[1], dtype=torch.float64, device=inputs.device
    )
    rows = max(1, _CACHE_ELEMENTS // max(1, inputs.shape[1]))
    for part, x, used_part in zip(
        *(torch.split(tensor, rows) for tensor in (scaled, inputs, used)), strict=True
    ):
        weight += part.T @ _zero_unused(x.to(torch.float64), used_part)
    return torch.cat((weight.flatten(), scaled.sum(0)))


def integer_sum(gradients: Tensor, clip: float, mask: Tensor, step: float) -> Clipped:
    """Return `clipped_sum` in whole steps of `step`: rows are cut to the grid and added exactly.

    gradients: (B, d) float32. mask: (B,) bool. Needs B·clip/step < 2^53 and clip/step <= 2^12, so
    that float32 holds every square and every sum of a block exactly. The total is int64 counts of
    `step`.

    Guarantee: the l2 norm of each row's integers is checked, exactly, to be at most clip/step, and
    the rows are added exactly. So the sensitivity of the sum is `clip`, without any rounding.
    Numbers are cut toward zero, which shortens a row, so no allowance for d is needed. It moves the
    sum by less than one step a row.

    Edge cases: those of `clipped_sum`. A row whose integers are too long would contribute zero.
    This cannot happen, as the factor leaves 2^-16 of room.

    Raises ValueError for more than 2^12 steps in `clip`, and as `clipped_sum`.
    """
    norms = _norms(gradients)
    factors = (_factors(norms, reduced_clip(clip, 1), mask) / step).to(gradients.dtype)
    finite = norms <= MAX_NORM
    limit = steps_limit(clip, step)
    if (kernels := _compiled(gradients)) is not None and len(gradients) < MAX_INTEGER_ROWS:
        steps = torch.zeros(gradients.shape[1], dtype=torch.int32)
        kernels.add_integers(
            gradients.numpy(), factors.numpy(), finite.numpy(), limit, steps.numpy()
        )
        return Clipped(steps.to(torch.int64), clip, step)
    total = torch.zeros(gradients.shape[1], dtype=torch.float64, device=gradients.device)
    # That many rows have a sum that float32 holds exactly, in whatever order they are added.
    exact = int(2**24 * step / clip)
    rows = max(1, min(exact, _CACHE_ELEMENTS // max(1, gradients.shape[1])))
    parts = zip(
        torch.split(gradients, rows),
        torch.split(factors, rows),
        torch.split(finite, rows),
        strict=True,
    )
    for part, factor, used in parts:
        units = _zero_unused(torch.mul(part, factor[:, None]), used)
        units.copy_(units.to(torch.int32))  # cuts toward zero, eight times faster than torch.trunc
        # float32 adds these squares exactly below 2^24; a sum that reaches 2^24 never reads as
        # less.
        fits = torch.linalg.vecdot(units, units) < min(limit + 1, 2**24)
        total += fits.to(units.dtype) @ units
    return Clipped(total.to(torch.int64), clip, step)


def steps_limit(clip: float, step: float) -> int:
    """Return the bound on the sum of squares of a clipped row's integers: (clip/step)².

    It is a whole number but for its own rounding. Raises ValueError for more than 2^12 steps in
    `clip`.
    """
    limit = math.floor((clip / step) ** 2 * (1 + 2.0**-40))
    if limit > 2**24:
        raise ValueError(f"step={step}: more than 2^12 steps in clip={clip}")
    return limit


def _compiled(gradients: Tensor) -> Library | None:
    """Return the compiled loops, if there are any for these rows."""
    if gradients.is_cuda or gradients.dtype != torch.float32 or gradients.requires_grad:
        return None
    if gradients.is_contiguous():
        return library()
    return None


def add_rows(total: Tensor, gradients: Tensor, weights: Tensor) -> None:
    """Add total (B, d) += Σ_j weights[:, j]·gradients[:, j]: rows of units, in their order.

    gradients: (B·r, d) float32, r rows of each unit, changed in place. weights: (B, r).

    Guarantee: the addition for a unit is a function of its own rows, weights and place, as every
    number is computed by itself. A row of weight 0 adds nothing, for every content. A row of
    another weight that is not finite makes its unit's sum not finite, and clipping then counts the
    unit as zero.
    """
    rows = _zero_unused(gradients, weights.flatten() != 0).view(*weights.shape, -1)
    for place in range(weights.shape[1]):
        total.addcmul_(rows[:, place], weights[:, place, None])


def reduced_clip(clip: float, rows: int) -> float:
    """Return C' of `clipped_sum`: the norm that a row of a batch of `rows` is cut to.

    With its own rounding and that of the sum, a row then moves the sum by at most C.
    Raises ValueError as `clipped_sum`.
    """
    if not _MIN_CLIP <= clip < math.inf:
        raise ValueError(f"clip={clip}: expected a finite number, at least {_MIN_CLIP:.1e}")
    if rows > _MAX_ROWS:
        raise ValueError(f"{rows} rows: float64 sums of at most {_MAX_ROWS} keep their sensitivity")
    return clip * (1.0 - _SLACK - 2 * rows * (rows + 2) * 2.0**-52)


def _factors(norms: Tensor, reduced: float, mask: Tensor) -> Tensor:
    """Return (B,) float64: min(1, C'/norm), and 0 where the row is masked out or non-finite."""
    return torch.where((norms <= MAX_NORM) & mask, (reduced / norms).clamp(max=1.0), 0.0)


def _zero_unused(rows: Tensor, used: Tensor) -> Tensor:
    """Return `rows` (B, d), changed in place: zeros where `used` (B,) is False.

    What stands there does not matter. A product would not do, as 0·inf is nan. The bits are masked,
    which is the same work for every row.
    """
    if rows.dtype == torch.float64:
        bits = torch.int64
    else:
        bits = torch.int32
    rows.view(bits).bitwise_and_(-used.to(bits)[:, None])
    return rows


def _norms64(rows: Tensor) -> Tensor:
    """Return (B,) float64: l2 norms, computed in float64 throughout."""
    # In parts, because vector_norm(rows, dtype=float64) of the whole is 10 times slower.
    parts = torch.split(rows, max(1, _CACHE_ELEMENTS // max(1, rows.shape[1])))
    return torch.cat([torch.linalg.vector_norm(part.to(torch.float64), dim=1) for part in parts])


def _norms(gradients: Tensor) -> Tensor:
    """Return l2 norms (B,) float64, computed in float32 in a block of columns, float64 across."""
    blocks = [
        torch.linalg.vector_norm(block, dim=1)
        for block in torch.split(gradients, _NORM_COLUMNS, dim=1)
    ]
    norms: Tensor = torch.linalg.vector_norm(torch.stack(blocks).to(torch.float64), dim=0)
    return norms
