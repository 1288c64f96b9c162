"""The way of a plan without a guarantee at the edge: nothing here is private."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tacit.privacy.private_sum.clipping import Clipped, clipped_sum
from tacit.privacy.private_sum.slots import Slots


class Plain:
    """A mean gradient over units drawn with replacement, not clipped.

    An algorithm whose paper sends something else derives from it. slots: compute the gradients.
    """

    way = "a plain batch"

    def __init__(self, slots: Slots) -> None:
        self.slots = slots

    @property
    def records(self) -> int:
        """The number of units that are drawn from."""
        return self.slots.records

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the mean gradient at `params` (d,); `clip` binds nothing."""
        index = self.with_replacement(round(self.slots.plan.batch))
        return Clipped(self.mean(params, index), math.inf)

    def begin_pass(self) -> None:
        """Do nothing: units are drawn with replacement."""

    def mean(self, params: Tensor, index: Tensor) -> Tensor:
        """Return the mean gradient (d,) of the units `index` (B,)."""
        return self.slots.mean(params.to(self.slots.device), index).cpu()

    def with_replacement(self, count: int) -> Tensor:
        """Return `count` independent row numbers (count,). The modulo bias is below n/2^64."""
        words = self.slots.random.words(count) % self.records
        return torch.from_numpy(words.astype("int64"))

    def rehearsals(self) -> list[Callable[[], Clipped]]:
        """Return `compute` on public rows."""
        clip = self.slots.plan.clip_max
        return [
            partial(type(self)(public).compute, params, clip)
            for params, public in self.slots.public()
        ]


class WholeVector(Plain):
    """A mean gradient that is one vector of norm C where the server adds the noise.

    The edge is the unit then, and what it sends is clipped as a whole.
    """

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the mean gradient at `params` (d,), clipped where the server adds the noise."""
        plan = self.slots.plan
        plain = super().compute(params, clip)
        if plan.noise_at == "edge" or plan.mechanism == "none":
            return plain
        everyone = torch.ones(1, dtype=torch.bool)
        return Clipped(clipped_sum(plain.total[None], clip, everyone).total, math.inf)
