"""The target y of a data set, in the words of its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True, slots=True)
class Target:
    """The target y, in the words of the file.

    kind: "classes", by `names`; "number", which is low + span·y; "text": the next word.
    """

    kind: Literal["classes", "number", "text"]
    names: tuple[str, ...] = ()
    low: float = 0.0
    span: float = 1.0

    @property
    def classes(self) -> int:
        """Number of classes; 0 of a number."""
        return len(self.names)

    def unscaled(self, y: torch.Tensor) -> torch.Tensor:
        """Return numbers (float64) in the unit of the file."""
        return self.low + self.span * y.double()
