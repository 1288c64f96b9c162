"""[algorithm] of DP-PASGD (arXiv:2003.12705). Letters are the paper's."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tacit.config.algorithms.local_steps import local_steps_agree
from tacit.config.algorithms.step_sizes import StepSizes
from tacit.config.contract import USUAL_CLIP, Sections
from tacit.config.sections import Positive


class DpPasgd(StepSizes):
    """DP-PASGD: τ local noisy steps, then an average of every device. DP-SGD is tau = 1."""

    name: Literal["dp-pasgd"] = Field(description="which")
    learning_rate: Positive = Field(0.1, description="η of a local step")
    tau: int = Field(10, gt=0, le=100_000, description="τ, local steps between two averages")
    quorum: float = Field(
        0.5, gt=0, le=1, description="part of the devices that must have answered in time"
    )
    deadline_s: Positive = Field(60.0, description="seconds that a round waits for all devices")

    @property
    def steps(self) -> int:
        """Local steps that one update costs."""
        return self.tau

    @property
    def watched(self) -> bool:
        """Gradients, models and distances are judged alike."""
        return True

    @property
    def combines(self) -> bool:
        """Its rounds."""
        return True

    @property
    def usual_clip(self) -> float:
        """`USUAL_CLIP`."""
        return USUAL_CLIP

    @property
    def versions(self) -> str:
        """Rounds."""
        return "rounds"

    def uploads(self, workers: int) -> int:
        """Return the number of devices: each sends one update for a version."""
        return workers

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        if run.privacy.mechanism.startswith("paper"):
            raise ValueError(
                f"privacy.mechanism={run.privacy.mechanism}: for the paper's noise, set "
                f"privacy.noise_multiplier to "
                "what `tacit plan dp-pasgd --planner paper` finds"
            )
        if run.privacy.noise_at == "server":
            raise ValueError(
                "privacy.noise_at=server: dp-pasgd's devices add their noise themselves"
            )
        local_steps_agree(self.name, run)
