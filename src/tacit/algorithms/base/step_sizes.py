"""Schedules of a step size, which depend on the version alone and so cost no ε."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from tacit.config.sections import Section

_HALVINGS = 3  # of schedule "step", at equal distances


class StepSizes(Section):
    """A section whose step size may follow a schedule."""

    schedule: Literal["constant", "linear", "cosine", "step"] | None = Field(
        None,
        description="of the step size over run.updates: constant; linear or cosine to 0; step: "
        "halved three times; left out: the algorithm's own rule",
    )
    warm_up: float = Field(
        0.0, ge=0, lt=1, description="part of run.updates in which it grows to its size"
    )

    def factor(self, version: int, horizon: int) -> float:
        """Return what the step size of `version` of `horizon` is multiplied by, in [0, 1]."""
        progress = min(version / horizon, 1.0)
        if self.warm_up:
            grown = min(1.0, (version + 1) / (self.warm_up * horizon))
        else:
            grown = 1.0
        match self.schedule:
            case "linear":
                return grown * (1 - progress)
            case "cosine":
                return grown * (1 + math.cos(math.pi * progress)) / 2
            case "step":
                return float(grown * 0.5 ** min(_HALVINGS, int((_HALVINGS + 1) * progress)))
        return grown
