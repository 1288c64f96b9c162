"""[algorithm] of DP-PASGD (arXiv:2003.12705). Letters are the paper's."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tacit.config.algorithm_contract import USUAL_CLIP, Sections
from tacit.config.algorithms.step_settings import local_steps_agree
from tacit.config.algorithms.step_sizes import StepSizes
from tacit.config.traits import Traits, in_several
from tacit.privacy.policy import Positive


class DpPasgd(StepSizes):
    """DP-PASGD: τ local noisy steps, then an average of every device. DP-SGD is tau = 1."""

    name: Literal["dp-pasgd"] = Field(description="which")
    learning_rate: Positive = Field(0.1, description="η of a local step")
    tau: int = Field(10, gt=0, le=100_000, description="τ, local steps between two averages")
    quorum: float = Field(
        0.5, gt=0, le=1, description="part of the devices that must have answered in time"
    )
    deadline_s: Positive = Field(60.0, description="seconds that a round waits for all devices")

    def traits(self, workers: int) -> Traits:
        """Return the traits of rounds: each device sends one update a round, of τ local steps."""
        return Traits(
            uploads=workers,
            steps=self.tau,
            counted=in_several("rounds", workers),
            usual_clip=USUAL_CLIP,
            watched=True,
            combines=True,
        )

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
