"""Slots that also count: how many units of a batch had a gradient within the clip norm.

Paper: Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with Adaptive
Clipping" (arXiv:1905.03871), section 3.

Idea. A unit's vector has one number more than its gradient: +κC if the gradient's norm was at most
C' = C·√(1 - κ²), else -κC. The gradient is clipped to C', so the whole vector has norm C at most,
and is clipped to C like any other vector. Of the noisy sum's last number a server makes the share
of units that were within.

Guarantee. That of `clipped_sum` and `integer_sum` for vectors of d + 1 numbers: it holds for any
vector of a unit that is a function of the unit alone. So the count costs no ε of its own. It costs
(1 - √(1 - κ²)) of C, half a per cent.

Shapes: B slots, d parameters.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.clipping import Clipped, clipped_sum, integer_sum
from tacit.privacy.private_sum.plain import Plain
from tacit.privacy.private_sum.slots import Slots, UnitSlots

SHARE: Final = 0.1  # κ
_ROOM = 1 - 2.0**-15  # twice what `reduced_clip` leaves, so that clipping changes no counted vector


def count_of(clip: float) -> float:
    """Return κC, what one unit adds to the last number, or takes from it."""
    return SHARE * clip * _ROOM


def share_within(last: float, clip: float) -> float:
    """Return an estimate of the share of units within C', from the last number of a noisy mean.

    It is unbiased but for the grid of integers, which shortens κC by at most 1 in 400. Its standard
    deviation by noise is z/(2κb). It may lie outside [0, 1].
    """
    return (last / count_of(clip) + 1) / 2


def counted(gradients: Tensor, clip: float) -> Tensor:
    """Return (B, d + 1): gradients (B, d) clipped to C', and whether each was within.

    A gradient that is not finite stays so, and its whole row counts as zero when it is summed up.
    """
    bound = clip * math.sqrt(1 - SHARE**2) * _ROOM
    norms = torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64)
    factors = (bound / norms).clamp(max=1.0).to(gradients.dtype)
    signs = torch.where(norms <= bound, count_of(clip), -count_of(clip)).to(gradients.dtype)
    return torch.cat([gradients * factors[:, None], signs[:, None]], dim=1)


class CountedSlots(Slots):
    """Slots of single rows, counted."""

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the clipped sum (d + 1,) of a part of the slots; rows: of the whole batch."""
        return _summed(self, counted(self.gradients(params, index), clip), clip, mask, rows)


class CountedUnitSlots(UnitSlots):
    """Slots of units of several rows, counted."""

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the clipped sum (d + 1,) of a part of the slots; rows: of the whole batch."""
        return _summed(self, counted(self.gradients(params, index), clip), clip, mask, rows)


def _summed(slots: Slots, vectors: Tensor, clip: float, mask: Tensor, rows: int) -> Clipped:
    step = slots.plan.step(clip)
    if step is not None:
        return integer_sum(vectors, clip, mask, step)
    return clipped_sum(vectors, clip, mask, rows)


class CountedPlain(Plain):
    """A mean gradient that is not clipped, with the mean of the counts: not private."""

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the mean gradient at `params` (d,), and the last number."""
        index = self.with_replacement(round(self.slots.plan.batch))
        gradients = self.slots.gradients(params.to(self.slots.device), index).cpu()
        last = counted(gradients, clip)[:, -1:]
        return Clipped(torch.cat([gradients, last], dim=1).mean(0), math.inf)


COUNTED_WAYS: Final = Ways(
    alone=None, slots=CountedSlots, outer=CountedSlots, units=CountedUnitSlots, plain=CountedPlain
)
