"""Slots, releasers and ledgers with one defect each, which the audit must catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.models.vectors import example_gradients
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.grid import grid_step
from tacit.privacy.private_sum.clipping import Clipped, clipped_sum
from tacit.privacy.private_sum.sampling import Batch
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Released, Releaser, Steps

# -- which rows, and where -------------------------------------------------------------------------


class Packed(Slots):
    """Puts the drawn rows one behind the other from the first slot on.

    A record so moves all behind it.
    """

    def draw(self) -> Batch:
        """Draw a Poisson batch, but for the places."""
        # Empty slots have the largest number, so they are sorted to the end.
        index = super().draw().index.sort().values.roll(self.first())
        return Batch(index, index < self.records)

    def first(self) -> int:
        """Return the slot of the first row."""
        return 0


class Turned(Packed):
    """Packs rows as `Packed`, from a random slot on.

    The place of a row *relative to the others* still tells.
    """

    def first(self) -> int:
        """Return any slot."""
        return int(self.random.words(1)[0] % np.uint64(self.size))


# -- how they are clipped --------------------------------------------------------------------------


class LayersApart(Slots):
    """Clips each layer's part of a row by itself; together the parts are longer than C."""

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the sum of a part, with the defect."""
        gradients = example_gradients(self.model, params, self.x[index], self.y[index])
        parts = torch.split(gradients, list(self.model.sizes), dim=1)
        return Clipped(
            torch.cat([clipped_sum(part.contiguous(), clip, mask, rows).total for part in parts]),
            clip,
        )


class PairsTogether(Slots):
    """Adds two rows before it clips, as a kernel that works on pairs would."""

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the sum of a part, with the defect."""
        gradients = (
            example_gradients(self.model, params, self.x[index], self.y[index]) * mask[:, None]
        )
        pairs = gradients[0::2] + gradients[1::2]
        return clipped_sum(pairs, clip, torch.ones(len(pairs), dtype=torch.bool), rows)


class RoundedToNearest(Slots):
    """Rounds to the nearest grid step and does not check the norm again.

    Many halves become ones.
    """

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the sum of a part, with the defect."""
        gradients = example_gradients(self.model, params, self.x[index], self.y[index]).double()
        step = grid_step(clip, self.plan.noise_multiplier)
        factors = (clip / gradients.norm(dim=1)).clamp(max=1.0) * mask
        return Clipped(
            (gradients * (factors[:, None] / step)).round().sum(0).to(torch.int64), clip, step
        )


class StrangeRowsToo(Slots):
    """Takes every gradient for a number."""

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the sum of a part, with the defect."""
        gradients = example_gradients(self.model, params, self.x[index], self.y[index])
        factors = (clip / gradients.norm(dim=1)).clamp(max=1.0) * mask
        return Clipped((factors @ gradients).double(), clip)


class CopiesStrangeRows(Slots):
    """Replaces non-finite numbers in a copy, where there are any: the time of a push then tells."""

    def clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the sum of a part, with the defect."""
        gradients = example_gradients(self.model, params, self.x[index], self.y[index])
        if not bool(torch.isfinite(gradients.norm(dim=1)).all()):
            gradients.masked_fill(~torch.isfinite(gradients), 0.0)
        return super().clipped_part(params, clip, index, mask, rows)


class TwiceTheClip(Slots):
    """Clips at 2C; the noise is that of C."""

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the sum of rows that are too long, as if they were cut to C."""
        return replace(super().compute(params, 2 * clip), sensitivity=clip)


# -- local steps, noise and charges ----------------------------------------------------------------


class NoiseAtTheEnd(Releaser):
    """Adds noise at the last local step only; the others are "post-processed" by it."""

    def release_steps(self, steps: Steps, query: Callable[[Tensor], Clipped]) -> Released:
        """Release all steps but the last one without noise."""
        params = self._begin_steps(steps)
        for number in range(1, steps.count + 1):
            clipped = query(params)
            plain = (clipped.total / self.plan.batch).to(torch.float32)
            if number == steps.count:
                params = self._take_step(params, clipped, steps)
            else:
                params = steps.advance(params, plain)
        return self._end_steps(params, steps)


class ChargedOnce(Releaser):
    """Makes one charge for all local steps of a task."""

    def _charge(self, clip: float, count: int) -> None:
        super()._charge(clip, 1)


class CutNoise(Releaser):
    """Cuts its noise off at three standard deviations."""

    def _noisy(
        self, clipped: Clipped, clip: float, paper_dims: slice | None
    ) -> tuple[Tensor, float]:
        noisy, scale = super()._noisy(clipped, clip, paper_dims)
        exact = clipped.total / self.plan.batch
        most = 3 * self.plan.noise_multiplier * clip / self.plan.batch
        return (exact + (noisy - exact).clamp(-most, most)).to(torch.float32), scale


class LateLedger(Ledger):
    """Keeps charges in memory, and writes sixteen at a time."""

    _waiting: list[tuple[tuple[Any, ...], dict[str, Any]]]

    def charge(self, *numbers: Any, **others: Any) -> None:
        """Keep the charge, and write all that are kept once there are sixteen."""
        self._waiting = [*getattr(self, "_waiting", []), (numbers, others)]
        if len(self._waiting) >= 16:
            for positional, keywords in self._waiting:
                super().charge(*positional, **keywords)
            self._waiting = []
