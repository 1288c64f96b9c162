"""The [algorithm] section of `ebm`, and what follows from it alone."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.config.algorithm_contract import Sections
from tacit.config.traits import Traits
from tacit.models.additive import ADDITIVE
from tacit.privacy.policy import Positive
from tacit.privacy.release import Plan

_HIDDEN: Final = 20.0  # rows of an edge for each that noise hides in a bin
RELEASES = 18  # of an edge: two that count, and sixteen steps
RESIDUAL = (
    0.7  # C: half of what a residual of two classes can be, 1/√2 at a probability of one half
)


class EbmSettings(AlgorithmSettings):
    """The keys of private additive boosting. None needs to be stated."""

    searched: ClassVar = {"learning_rate": (0.05, 1.0)}

    name: Literal["ebm"] = Field(description="the algorithm")
    learning_rate: Positive = Field(
        0.2, le=1, description="part of a Newton step that an update takes; it falls over the run"
    )
    smoothness: Positive = Field(
        0.2, description="of a column of numbers: how far neighbouring bins may lie apart, at 32"
    )
    size: Positive = Field(1.0, description="how far a column's function may lie from 0")

    @classmethod
    def implied(cls, workers: int) -> dict[str, dict[str, Any]]:
        """Return the model, and as many updates as every edge's releases are."""
        return {"model": {"name": ADDITIVE}, "run": {"updates": RELEASES * workers}}

    def traits(self, workers: int) -> Traits:
        """Return the traits: every release of an edge reads all of its rows."""
        return Traits(
            usual_clip=RESIDUAL,
            oldest=self.max_staleness,
            in_turn=True,
            watched=True,
            every_row=True,
        )

    def hindered(self, plan: Plan) -> list[str]:
        """Return a sentence where noise hides the rows of an edge."""
        rows = plan.batch / plan.charged_rate
        hidden = plan.noise_multiplier / math.sqrt(RELEASES)
        if rows > _HIDDEN * hidden:
            return []
        return [
            f"privacy.epsilon={plan.epsilon:g}: in each bin noise weighs as {hidden:.3g} of an "
            f"edge's {rows:g} rows, so little is learnt; more rows, or a larger ε"
        ]

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        if run.model.name != ADDITIVE:
            raise ValueError(
                f"model.name={run.model.name}: ebm learns a function of each column; leave it out"
            )
        if run.privacy.noise_at == "server":
            raise ValueError("privacy.noise_at=server: ebm has its noise at the edge; leave it out")
