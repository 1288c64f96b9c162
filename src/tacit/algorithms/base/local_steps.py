"""The edge whose task is several local steps, each of them a release."""

from __future__ import annotations

import hashlib
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.laws import Laws
from tacit.algorithms.base.owner import Owner
from tacit.algorithms.base.step_settings import steps_in_order
from tacit.algorithms.base.step_sizes import StepSizes
from tacit.config.algorithm_contract import Sections
from tacit.models import Model
from tacit.privacy.policy import Positive
from tacit.privacy.private_sum.choice import WAYS, Ways
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Releaser, Steps
from tacit.protocol.messages import SERVER, GlobalModel, Outgoing, Push, Update
from tacit.robust.law import Law


class LocalStepsTask(StepSizes, EdgeTask):
    """H local steps x ← x - γ(g̃ + ρ(x - x_τ)) from each model x_τ, H in [H_min, H_max].

    It is process Worker of FedAsync's Algorithm 1 (arXiv:1903.03934).
    """

    kind: Literal["local steps"] = Field("local steps", description="several steps for each model")
    learning_rate: Positive = Field(0.1, description="γ of a local step")
    steps_min: int = Field(5, gt=0, le=100_000, description="H_min, local steps of one task")
    steps_max: int | None = Field(
        None, gt=0, le=100_000, description="H_max; left out: H_min, all tasks alike"
    )
    proximal: float = Field(0.0, ge=0, le=1e6, description="ρ of ρ/2·||x - x_τ||²")
    push: Literal["distance", "model"] = Field(
        "distance", description="what an edge sends: x - x_τ, or x itself"
    )

    @model_validator(mode="after")
    def _order(self) -> Self:
        steps_in_order(self.steps_min, self.steps_max)
        return self

    @property
    def most_steps(self) -> int:
        """H_max."""
        return self.steps_max or self.steps_min

    @property
    def relative(self) -> bool:
        """Whether it pushes distances."""
        return self.push == "distance"

    def agree(self, run: Sections) -> None:
        """Raise ValueError where the server would have to noise a whole model."""
        super().agree(run)
        if run.privacy.noise_at == "server" and self.push == "model":
            raise ValueError(
                'privacy.noise_at=server: the distance of a whole model is not bounded; push = "'
                'distance"'
            )

    def steps(self, most: int, edge: str, version: int) -> int:
        """Return H in [H_min, `most`], by the edge's name and τ: public, and always the same."""
        digest = hashlib.sha256(f"tacit steps|{edge}|{version}".encode()).digest()
        return self.steps_min + int.from_bytes(digest[:8]) % (most - self.steps_min + 1)

    def rate(self, version: int, horizon: int) -> float:
        """Return γ of a task on model `version` in a run of `horizon` updates."""
        return self.learning_rate * self.factor(version, horizon)

    def role(self, owner: Owner, horizon: int, ways: Ways = WAYS) -> EdgeRole:
        """Return a `LocalStepsEdge`."""
        kind = owner.kind or LocalStepsEdge
        summed = owner.private_sum(ways)
        return kind(self, owner.name, owner.model, owner.releaser, summed, horizon=horizon)

    def law(self, laws: Laws, update: Update, clip: float, horizon: int) -> Law:
        """Return the law of one task's distance from its model."""
        rate = self.rate(update.base_version, horizon)
        most = self.steps(self.most_steps, update.edge, update.base_version)
        return laws.steps(
            update.edge, clip, rate, most=most, fewest=self.steps_min, proximal=self.proximal
        )


class LocalStepsEdge(EdgeRole):
    """An edge that takes a number of local steps and pushes their end, or their distance.

    Every step is charged; combining them is post-processing.
    """

    def __init__(
        self,
        task: LocalStepsTask,
        edge: str,
        model: Model,
        releaser: Releaser,
        private_sum: PrivateSum,
        *,
        horizon: int = 1,
    ) -> None:
        """horizon: T, which a schedule of the step size counts by. Otherwise as EdgeRole."""
        super().__init__(edge, model, releaser, private_sum)
        self.task = task
        self.horizon = horizon

    def steps(self, message: GlobalModel) -> Steps:
        """Return H local steps on the loss f(x; z) + ρ/2·||x - x_τ||², whose result is pushed.

        The proximal part is a function of public values, so it stays outside the clipped gradient.
        """
        rate = self.task.rate(message.version, self.horizon)
        proximal = self.task.proximal
        anchor = message.params

        def advance(params: Tensor, gradient: Tensor) -> Tensor:
            if proximal:
                pull = gradient + proximal * (params - anchor)
            else:
                pull = gradient
            return torch.add(params, pull, alpha=-rate)

        count = self.task_steps(message.version)
        return Steps(message.clip, count, anchor, advance, self.task.push == "distance")

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Take all steps of the task and return one push."""
        steps = self.steps(message)
        released = self.releaser.release_steps(
            steps, lambda params: self.private_sum.compute(params, steps.clip)
        )
        return [Outgoing(SERVER, Push(self.edge, message.version, released))]

    @property
    def most_steps(self) -> int:
        """H_max."""
        return self.task.most_steps

    def task_steps(self, version: int) -> int:
        """Return H for a task on model `version`.

        Near the end of the budget it is at most what is left, but not below H_min.
        """
        remaining = self.releaser.releases_left
        most = self.task.most_steps
        if remaining is not None and self.task.steps_min <= remaining < most:
            most = remaining
        return self.task.steps(most, self.edge, version)
