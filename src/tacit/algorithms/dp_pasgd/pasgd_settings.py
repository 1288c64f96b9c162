"""[algorithm] of DP-PASGD (arXiv:2003.12705). Letters are the paper's."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tacit.algorithms.base.algorithm import TaskSettings
from tacit.algorithms.base.local_steps import LocalStepsTask
from tacit.algorithms.base.step_settings import local_steps_agree
from tacit.algorithms.base.step_sizes import StepSizes
from tacit.config.algorithm_contract import RATES, USUAL_CLIP, Sections
from tacit.config.traits import Traits, in_several
from tacit.privacy.policy import Positive
from tacit.privacy.release import NoiseAt


class DpPasgd(StepSizes, TaskSettings):
    """DP-PASGD: τ local noisy steps, then an average of every device. DP-SGD is tau = 1."""

    searched: ClassVar = {"learning_rate": RATES}

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

    def task(self, noise_at: NoiseAt = "edge") -> LocalStepsTask:
        """Return τ steps θ_m^k = θ_m^{k-1} - η·(g(θ_m^{k-1}) + b_m), b_m ~ N(0, σ_m²·I).

        It is the first case of eqs (6) and (7).
        """
        return LocalStepsTask(
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            warm_up=self.warm_up,
            steps_min=self.tau,
            push="model",
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
