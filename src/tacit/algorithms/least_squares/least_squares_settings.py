"""[algorithm] of least squares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tacit.algorithms.base.algorithm import TaskSettings
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.least_squares.moments_edge import MomentsTask
from tacit.config.algorithm_contract import Sections
from tacit.config.model import ModelSection
from tacit.config.own_table import TableData
from tacit.config.sections import Privacy
from tacit.config.traits import Traits
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.models.objectives import Objective
from tacit.privacy.policy import Positive
from tacit.privacy.release import NoiseAt, Plan

_MODELS = ("linear", "logistic")


class LeastSquaresSettings(TaskSettings):
    """Least squares, one class against the rest; nothing need be set."""

    searched: ClassVar = {"ridge": (0.03, 3.0)}

    name: Literal["least-squares"] = Field(description="the algorithm")
    ridge: Positive = Field(
        0.5, description="λ, in norms of what noise alone makes of XᵀX; the noise decides the rest"
    )
    class_weights: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (),
        strict=False,
        description="of each class, at most 1, in the order of its names; left out: all alike",
    )
    norm: float = Field(
        1.0,
        ge=1,
        le=1e6,
        description="of a number: the length of a short row, with the 1 after it; more is less "
        "noise, and of rows that are shorter still the target counts for less than it is",
    )
    max_staleness: int = Field(
        2**53, gt=0, description="an edge's moments count however late they come"
    )

    @classmethod
    def implied(cls, workers: int, stated: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return one update an edge, and the model that is solved for."""
        return {"run": {"updates": workers}, "model": {"name": _MODELS[0]}}

    def traits(self, workers: int) -> Traits:
        """Return the traits: each edge releases the moments of all its rows, once."""
        return Traits(
            counted="answers",
            usual_clip=1.0,
            oldest=self.max_staleness,
            released="once",
            every_row=True,
        )

    def task(self, noise_at: NoiseAt = "edge") -> EdgeTask:
        """Return second moments of all rows."""
        return MomentsTask(class_weights=self.class_weights, norm=self.norm)

    def build_model(
        self,
        section: ModelSection,
        shape: tuple[int, ...],
        classes: int,
        workers: int,
        folder: Path,
        objective: Objective | None = None,
        integers: int | None = None,
    ) -> Model:
        """Return the model that is solved for. Raises ConfigError for what has none."""
        if objective is not None or integers is not None:
            what = "of words" if objective is None else f"of kind {objective.target.kind}"
            raise ConfigError(
                f"algorithm.name=least-squares: is for classes and numbers, and the data is {what}"
            )
        model = super().build_model(section, shape, classes, workers, folder)
        if self.class_weights and len(self.class_weights) != classes:
            raise ConfigError(
                f"algorithm.class_weights: {len(self.class_weights)} for {classes} classes; state "
                "one for each"
            )
        return model

    def hindered(self, plan: Plan) -> list[str]:
        """Return nothing: nothing is learnt by steps."""
        return []

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        _noise_agrees(run.privacy)
        _model_agrees(run)
        if run.run.average is not None:
            raise ValueError(
                f"run.average={run.run.average:g}: each answer is in the last model; leave it out"
            )
        if run.guard.norm_factor is not None:
            raise ValueError(
                f"guard.norm_factor={run.guard.norm_factor:g}: no bound is known of moments; it is "
                "for gradients"
            )


def _noise_agrees(privacy: Privacy) -> None:
    if privacy.mechanism not in ("discrete_gaussian", "none") or privacy.noise_at == "server":
        raise ValueError(
            f"privacy.mechanism={privacy.mechanism} at the {privacy.noise_at}: second moments "
            "are whole numbers; use discrete_gaussian at the edge"
        )
    if privacy.private and privacy.clip != 1:
        raise ValueError(f"privacy.clip={privacy.clip}: a row counts as 1 at most; leave it out")
    if privacy.private and privacy.noise_multiplier is not None:
        raise ValueError("privacy.noise_multiplier: follows from privacy.epsilon; leave it out")
    if privacy.private and privacy.pushes != 1:
        raise ValueError(f"privacy.pushes={privacy.pushes}: an edge releases once; leave it out")


def _model_agrees(run: Sections) -> None:
    if run.model.name not in _MODELS:
        raise ValueError(
            f"model.name={run.model.name}: least-squares solves for one layer; use "
            f"{' or '.join(_MODELS)}, or leave [model] out"
        )
    if run.model.regularization:
        raise ValueError(
            f"model.regularization={run.model.regularization:g}: least-squares has "
            "algorithm.ridge in its place"
        )
    if not isinstance(run.data, TableData) or not isinstance(run.data.target, str):
        return
    target = run.data.columns.get(run.data.target)
    if target is not None and target.center is not None:
        raise ValueError(
            f"data.columns.{run.data.target}: center and scale: least-squares takes a target from "
            "low to high; leave them out"
        )
