"""Standardising by public bounds: what lies between them is brought to -1 … 1.

    x = 2·(r - low)/(high - low) - 1, at most 1 and at least -1

The bounds are said, never measured: a mean or a spread of private records would tell of them, at no
ε that anybody counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Standardise:
    """The step of a run file.

    low, high: of every number of a record, or of each: as many as a record has, in their order. A
    record's features have a Euclidean length of √d at most.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def constants(self) -> list[object]:
        """All that it depends on."""
        return ["standardise", self.low, self.high]

    def shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the same shape. Raises ConfigError for bounds of another number of values."""
        width = torch.Size(shape).numel()
        for name, bounds in (("low", self.low), ("high", self.high)):
            if len(bounds) not in (1, width):
                raise ConfigError(
                    f"data.features: {name} has {len(bounds)} numbers, a record {width}; give "
                    "as many, or one for all"
                )
        return shape

    def of_record(self, record: Tensor) -> Tensor:
        """Return x of one record, of its shape."""
        low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (self.low, self.high))
        part = (record.flatten().double() - low) / (high - low)
        return (2 * part - 1).clamp(-1, 1).to(record.dtype).view_as(record)
