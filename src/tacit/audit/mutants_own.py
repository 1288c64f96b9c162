"""Slots for users' own modules that keep rows apart badly, which the audit must catch."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from tacit.models.vectors import example_gradients
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.slots import Slots


class ByTheirNumber(Slots):
    """Weighs each row by how many are in the batch, as a loss that is a mean does."""

    def clipped(self, params: Tensor, clip: float, index: Tensor, mask: Tensor) -> Clipped:
        """Return the clipped sum, times the slots for each row drawn."""
        clipped = super().clipped(params, clip, index, mask)
        return replace(clipped, total=clipped.total * (len(mask) / max(1, int(mask.sum()))))


class WithNeighbours(Slots):
    """Takes the batch's mean from every row, as a layer that normalises by the batch does."""

    def gradients(self, params: Tensor, index: Tensor) -> Tensor:
        """Return gradients (B, d) of rows that depend on each other."""
        x = self.x[index]
        return example_gradients(self.model, params, x - x.mean(0), self.y[index])


class DropsTheBatch(Slots):
    """Catches what one row raises for the whole batch, which then adds nothing."""

    def gradients(self, params: Tensor, index: Tensor) -> Tensor:
        """Return gradients (B, d): all nan, where one is."""
        gradients = super().gradients(params, index)
        if bool(gradients.isfinite().all()):
            return gradients
        return torch.full_like(gradients, math.nan)


class EndsWithARow(Slots):
    """Lets through what a row raises."""

    def gradients(self, params: Tensor, index: Tensor) -> Tensor:
        """Return gradients (B, d), unless a row's is not finite."""
        gradients = super().gradients(params, index)
        if not bool(gradients.isfinite().all()):
            raise ArithmeticError("at the pole")  # as the code does
        return gradients
