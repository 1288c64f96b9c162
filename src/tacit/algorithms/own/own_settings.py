"""The settings of a user's own algorithm."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_serializer,
    model_validator,
)

from tacit.algorithms.base.algorithm import TaskSettings
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.gradient_edge import GradientTask
from tacit.algorithms.base.local_steps import LocalStepsTask
from tacit.algorithms.base.tree_sums import TreeSumsTask
from tacit.algorithms.own.own_code import calling
from tacit.algorithms.own.own_steps import OwnStepsTask
from tacit.config.algorithm_contract import USUAL_CLIP, Sections
from tacit.config.complaints import one_line
from tacit.config.traits import Traits, in_several
from tacit.errors import ConfigError
from tacit.privacy.release import NoiseAt
from tacit.user_code import entry_digest

EDGE_TASKS: tuple[type[EdgeTask], ...] = (GradientTask, LocalStepsTask, TreeSumsTask, OwnStepsTask)
StatedTask = Annotated[
    GradientTask | LocalStepsTask | TreeSumsTask | OwnStepsTask, Field(discriminator="kind")
]


class AlgorithmSettings(TaskSettings):
    """The [algorithm] section of an own algorithm: inherit from it, and add keys.

    A key is a pydantic field with a type, a default and bounds. `searched` names those that
    `tacit tune` varies. edge and code are stated for sites that have none of the algorithm's code.
    """

    name: str = Field(description='the entry, "module:Algorithm"')
    edge: StatedTask | None = Field(
        None, description="what an edge computes, for sites without the algorithm's code"
    )
    code: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="SHA-256 of the algorithm's code"
    )
    max_staleness: int = Field(100, gt=0, description="older updates are refused as stale")
    _stated: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _as_stated(cls, content: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Hold what the run file states: a site that cannot check it must name the same run."""
        stated = copy.deepcopy(content)  # a validator of the user's may write into it
        section = handler(content)
        if isinstance(stated, dict):
            _refuse_unnameable(stated)
            section._stated = stated
        return section

    @model_serializer(mode="plain")
    def as_stated(self) -> dict[str, Any]:
        """Return what the run file states, and the SHA-256 of the code."""
        return copy.deepcopy(self._stated)

    def computes(self) -> EdgeTask:
        """Return what an edge computes for one update: one noisy gradient, if not overridden."""
        return GradientTask()

    def uploads(self, workers: int) -> int:
        """Return how many updates make one version: one, if not overridden."""
        return 1

    def asked_uploads(self, workers: int) -> int:
        """Return what `uploads` gives. Raises ConfigError unless it is a positive whole number."""
        with calling(self.name, "uploads"):
            uploads = self.uploads(workers)
        if not isinstance(uploads, int) or uploads < 1:
            raise ConfigError(
                f"algorithm.entry={self.name}: uploads() gave {uploads!r}; return how many updates "
                "make one version, 1 or more"
            )
        return uploads

    def task(self, noise_at: NoiseAt = "edge") -> EdgeTask:
        """Return what an edge computes for one update."""
        return self.edge or self.asked()

    def asked(self) -> EdgeTask:
        """Return what `computes` asks for. Raises ValueError, ConfigError."""
        try:
            with calling(self.name, "computes"):
                task = self.computes()
        except ValidationError as error:
            complaint = one_line(error, EdgeTask)
            raise ValueError(f"algorithm.entry={self.name}: computes(): {complaint}") from error
        if type(task) not in EDGE_TASKS:
            raise ValueError(
                f"algorithm.entry={self.name}: computes() gave a {type(task).__name__}; return a "
                "task, as GradientTask()"
            )
        return task

    def traits(self, workers: int) -> Traits:
        """Return the traits of a server that answers each update by itself."""
        task = self.task()
        uploads = self.asked_uploads(workers)
        return Traits(
            uploads=uploads,
            steps=1 if task.passes else task.most_steps,
            counted=in_several("updates" if uploads == 1 else "versions", uploads),
            usual_clip=USUAL_CLIP,
            oldest=self.max_staleness,
            in_turn=True,
            watched=task.relative and task.lawful,
            beside=task.beside,
            passes=task.passes,
        )

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others, or its code."""
        if run.privacy.mechanism.startswith("paper"):
            raise ValueError(
                f"privacy.mechanism={run.privacy.mechanism}: that is MAPA's paper's noise"
            )
        if run.privacy.clip is None and run.privacy.private:
            raise ValueError("privacy.clip: set it, to 2 for example")
        self.task().agree(run)
        if self.edge is not None and _without_code(self.edge) != self.asked():
            raise ValueError(
                f"algorithm.edge = {self.edge.toml()}: the algorithm's code asks for "
                f"{self.asked().toml()}"
            )

    def with_rule(self, folder: Path) -> dict[str, Any]:
        """Return what the run file states, with the SHA-256 of a rule that edges run.

        So everybody agrees on the rule's code, wherever it stands. Raises ConfigError where it is
        missing.
        """
        task = self.task()
        if not isinstance(task, OwnStepsTask) or task.code is not None:
            return self.as_stated()
        code = entry_digest(task.entry, folder, "algorithm.edge.entry")
        edge = {"kind": task.kind} | task.model_dump(exclude_defaults=True) | {"code": code}
        return self.as_stated() | {"edge": edge}


def _refuse_unnameable(stated: dict[str, Any]) -> None:
    """Raise ValueError for a key whose value cannot be in a run's name: no date, no inf or nan."""
    for key, value in stated.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{key}={value}: use text, a finite number, a list or a table") from (
                error
            )


def _without_code(task: EdgeTask) -> EdgeTask:
    """Return the task without the SHA-256 that a site states of a rule."""
    if isinstance(task, OwnStepsTask):
        return task.model_copy(update={"code": None})
    return task
