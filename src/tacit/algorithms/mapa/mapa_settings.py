"""[algorithm] of MAPA (arXiv:1912.07902) and its three relatives. Letters are the paper's."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tacit.algorithms.base.algorithm import TaskSettings
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.gradient_edge import GradientTask
from tacit.algorithms.base.step_sizes import StepSizes
from tacit.config.algorithm_contract import RATES, USUAL_CLIP, Sections
from tacit.config.traits import Traits
from tacit.privacy.policy import Positive
from tacit.privacy.release import NoiseAt

_EQ_12 = {"deviation", "failure"}  # the constants that give the first C


class Mapa(StepSizes, TaskSettings):
    """MAPA and its three relatives (Table II)."""

    searched: ClassVar = {"learning_rate": RATES, "smoothness": (0.03, 100.0)}
    centralised: ClassVar[tuple[str, ...]] = ("csgd",)

    name: Literal["mapa", "audp", "asgd", "csgd"] = Field(description="which")
    smoothness: Positive = Field(10.0, description="L, Lipschitz constant of the gradient")
    deviation: float = Field(30.0, ge=0, le=1e9, description="σ, standard deviation of a gradient")
    radius: Positive = Field(1.0, description="R, radius of the space")
    reduction: float = Field(
        0.5, ge=0.01, lt=1, description="θ, reduction ratio of the clip norm per stage"
    )
    initial_gap: Positive = Field(
        2.3, description="f(x_1) - f(x*), a public guess; ln 10 for ten classes"
    )
    failure: float = Field(
        1e-3, gt=0, lt=1, description="δ of eq. (12), for the first clip norm only"
    )
    learning_rate: Positive | None = Field(
        None, description="γ of every update, before its schedule; left out: by Table II"
    )
    max_staleness: int = Field(100, gt=0, description="older updates are refused as stale")

    def traits(self, workers: int) -> Traits:
        """Return the traits of MAPA: each update is answered by itself and makes a version.

        AUDP keeps its first C throughout, so eq. (12) sets it only where its constants are given.
        """
        by_eq_12 = self.name != "audp" or bool(self.model_fields_set & _EQ_12)
        return Traits(
            usual_clip=None if by_eq_12 else USUAL_CLIP,
            oldest=self.max_staleness,
            in_turn=True,
            watched=True,
        )

    def task(self, noise_at: NoiseAt = "edge") -> EdgeTask:
        """Return one noisy gradient."""
        return GradientTask()

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        mechanism = run.privacy.mechanism
        if self.name in ("asgd", "csgd") and mechanism != "none":
            raise ValueError(f"privacy.mechanism={mechanism}: {self.name} is not private; say none")
        if self.name in ("mapa", "audp") and mechanism == "none":
            raise ValueError(
                f"privacy.mechanism=none: {self.name} needs noise; use asgd without it"
            )
        if mechanism.startswith("paper") and self.deviation == 0 and run.privacy.clip is None:
            raise ValueError(
                "algorithm.deviation=0.0: eq. (12) gives no clip norm; set privacy.clip"
            )
        if self.name == "csgd" and run.edges.count != 1:
            raise ValueError(
                f"edges.count={run.edges.count}: csgd is centralised, one edge holds all the data"
            )
